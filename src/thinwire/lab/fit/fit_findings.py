"""The main findings of a study, at the last captured step."""

from dataclasses import dataclass

from thinwire.lab.fit.code_lengths import ENTROPY, HUFFMAN, ZSTD
from thinwire.lab.fit.fit_study import DISTRIBUTIONS, Study

NAMES = {"gennorm": "GenNorm", "normal": "Normal", "laplace": "Laplace", "histogram": "table"}
DISTANCE_NAMES = {"wasserstein": "Wasserstein-2", "kolmogorov": "Kolmogorov-Smirnov"}
EQUAL = 0.0005  # bits: the tables round smaller differences to 0


@dataclass(frozen=True)
class Finding:
    figure: str
    what: str
    sentence: str
    distribution: str

    @property
    def text(self) -> str:
        return f"{self.figure} {self.what}. {self.sentence}"


def findings(study: Study) -> list[Finding]:
    return [_nearest(study), _shapes(study), _bits(study)]


def _nearest(study: Study) -> Finding:
    last = study.overall[-1]
    by_distance = []
    for which, counts in last.nearest.items():
        named = [f"{NAMES[name]} for {count}" for name, count in counts.items() if count]
        by_distance.append(f"by {DISTANCE_NAMES[which]} {', '.join(named)}")
    counts = last.nearest["wasserstein"]
    nearest = max(DISTRIBUTIONS, key=lambda name: counts[name])
    sentence = f"The nearest distribution: {'; '.join(by_distance)}."
    return Finding(f"{counts[nearest]} of {last.layers}", f"layers are nearest to {NAMES[nearest]}", sentence, nearest)


def _shapes(study: Study) -> Finding:
    first, last = study.overall[0], study.overall[-1]
    earlier = "" if first is last else f" At step {first.step:,} it was {first.shape:.2f}."
    sentence = (
        f"At step {last.step:,} the shapes range from {last.least_shape:.2f} to {last.most_shape:.2f}. "
        f"Shape 2 is the normal distribution, 1 Laplace; a lower shape has heavier tails.{earlier}"
    )
    return Finding(f"{last.shape:.2f}", "is the median shape of GenNorm", sentence, "gennorm")


def _bits(study: Study) -> Finding:
    bits = study.overall[-1].bits
    ours = bits[HUFFMAN["gennorm"]]
    against = {
        "with Laplace": HUFFMAN["laplace"],
        "with a table": HUFFMAN["histogram"],
        "zstandard at level 1": ZSTD,
    }
    sentence = (
        f"A Huffman code with GenNorm takes {ours:.3f} bits per entry of {study.form.name}: "
        + ", ".join(f"{compared(bits[name] - ours)} {other}" for other, name in against.items())
        + f". The entropy is {bits[ENTROPY]:.3f}."
    )
    saved = bits[HUFFMAN["normal"]] - ours
    word = "fewer" if saved >= 0 else "more"
    return Finding(f"{abs(saved):.3f} bits", f"{word} per entry than with a normal distribution", sentence, "gennorm")


def compared(saved: float) -> str:
    if abs(saved) < EQUAL:
        return "the same as"
    return f"{abs(saved):.3f} {'fewer' if saved > 0 else 'more'} than"
