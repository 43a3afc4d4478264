"""What is seen, in sentences, at the last step that was captured."""

from dataclasses import dataclass

from thinwire.lab.fit.code_lengths import ENTROPY, HUFFMAN, ZSTD
from thinwire.lab.fit.fit_study import LAWS, Study

NAMES = {"gennorm": "GenNorm", "normal": "Normal", "laplace": "Laplace", "histogram": "table"}
DISTANCE_NAMES = {"wasserstein": "Wasserstein-2", "kolmogorov": "Kolmogorov-Smirnov"}
ALIKE = 0.0005  # bits, that no table shows


@dataclass(frozen=True)
class Finding:
    figure: str
    what: str
    sentence: str
    law: str  # that it is about

    @property
    def said(self) -> str:
        return f"{self.figure} {self.what}. {self.sentence}"


def findings(study: Study) -> list[Finding]:
    return [_nearest(study), _shapes(study), _bits(study)]


def _nearest(study: Study) -> Finding:
    last = study.overall[-1]
    told = []
    for which, counts in last.nearest.items():
        others = [f"{NAMES[law]} to {count}" for law, count in counts.items() if count]
        told.append(f"by {DISTANCE_NAMES[which]} {', '.join(others)}")
    counts = last.nearest["wasserstein"]
    law = max(LAWS, key=lambda law: counts[law])
    sentence = f"The nearest law: {'; '.join(told)}."
    return Finding(f"{counts[law]} of {last.layers}", f"layers are nearest to {NAMES[law]}", sentence, law)


def _shapes(study: Study) -> Finding:
    first, last = study.overall[0], study.overall[-1]
    moved = "" if first is last else f" At step {first.step:,} it was {first.shape:.2f}."
    sentence = (
        f"At step {last.step:,} layers are from {last.least_shape:.2f} to {last.most_shape:.2f}. "
        f"2 would be normal, 1 Laplace's; less has more small entries and larger large ones.{moved}"
    )
    return Finding(f"{last.shape:.2f}", "is the median of GenNorm's shapes", sentence, "gennorm")


def _bits(study: Study) -> Finding:
    bits = study.overall[-1].bits
    ours = bits[HUFFMAN["gennorm"]]
    against = {
        "under Laplace's law": HUFFMAN["laplace"],
        "with a table": HUFFMAN["histogram"],
        "zstandard takes at level 1": ZSTD,
    }
    sentence = (
        f"Huffman's code under GenNorm takes {ours:.3f} bits an entry of {study.form.name}: "
        + ", ".join(f"{less(bits[name] - ours)} {other}" for other, name in against.items())
        + f". The entropy is {bits[ENTROPY]:.3f}."
    )
    saved = bits[HUFFMAN["normal"]] - ours
    word = "fewer" if saved >= 0 else "more"
    return Finding(f"{abs(saved):.3f} bits", f"{word} an entry than under a normal law", sentence, "gennorm")


def less(saved: float) -> str:
    if abs(saved) < ALIKE:
        return "as many as"
    return f"{abs(saved):.3f} {'fewer' if saved > 0 else 'more'} than"
