"""The figures in the terminal: how near laws are, and what codes take."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Group
from rich.table import Table
from rich.text import Text

from thinwire.lab.fit.code_lengths import CODES, ENTROPY, HUFFMAN, PLAIN, RANS, ZSTD
from thinwire.lab.fit.fit_findings import NAMES, findings
from thinwire.lab.fit.fit_study import DISTANCES, LAWS, Layer, Study
from thinwire.lab.report.columns import UNKNOWN
from thinwire.lab.tables import plain_table

SHORT = {"wasserstein": "W2", "kolmogorov": "KS"}
CODE_NAMES = {
    ENTROPY: ("entropy",),
    **{name: ("Huffman", NAMES[law]) for law, name in HUFFMAN.items()},
    **{name: ("rANS", NAMES[law]) for law, name in RANS.items()},
    PLAIN: ("plain",),
    ZSTD: (ZSTD,),
}
SHORT_NAMES = {"entropy": "en-\ntropy", "Huffman": "Huff", "GenNorm": "GenN", "Normal": "Norm", "Laplace": "Lapl"}
SHORT_NAMES[ZSTD] = "zstd\n-1"
LETTERS = 17  # of a name, that 80 leave beside the figures
ALL = "all layers"
MEANS = "For all layers: means in which each counts by its entries."


@dataclass(frozen=True)
class Figures:
    """A table of layers: columns have names in lines; the last row is about all of them."""

    title: str
    columns: tuple[tuple[str, ...], ...]
    rows: Mapping[str, tuple[str, ...]]
    overall: tuple[str, ...]
    notes: tuple[str, ...]
    short: Mapping[str, str] = field(default_factory=dict)  # of words in the names, where 80 letters have to do


def figures(study: Study, layers: Sequence[Layer]) -> list[Figures]:
    return [_laws(study, layers), _distances(study, layers), _bits(study, layers)]


def _laws(study: Study, layers: Sequence[Layer]) -> Figures:
    first, last = study.overall[0], study.overall[-1]
    rows = {}
    for layer in layers:
        then, now = layer.at(first.step), layer.at(last.step)
        rows[layer.name] = (
            f"{layer.entries:,}",
            _share(now.zeros) if now else UNKNOWN,
            f"{then.shape:.2f}" if then else UNKNOWN,
            f"{now.shape:.2f}" if now else UNKNOWN,
            f"{now.fits['gennorm'].law.scale:.1e}" if now else UNKNOWN,
            f"{now.deviation:.1e}" if now else UNKNOWN,
        )
    overall = (f"{last.entries:,}", _share(last.zeros), f"{first.shape:.2f}", f"{last.shape:.2f}", "", "")
    columns = (("entries",), ("zeros",), ("shape", "at first"), ("shape", "at last"), ("scale",), ("deviation",))
    notes = (
        f"{_where(study)} Zeros: entries that are exactly zero, left out of all fits. Shape and scale are GenNorm's, "
        f"by maximum likelihood; at first is at step {first.step:,}. For all layers: the medians of the shapes.",
    )
    return Figures("The law of the entries", columns, rows, overall, notes)


def _distances(study: Study, layers: Sequence[Layer]) -> Figures:
    pairs = [(which, law) for which in DISTANCES for law in LAWS]
    last = study.overall[-1]
    rows = {
        layer.name: tuple(f"{now.distance(which, law):.3f}" if now else UNKNOWN for which, law in pairs)
        for layer in layers
        for now in [layer.at(last.step)]
    }
    overall = tuple(f"{last.distances[which][law]:.3f}" for which, law in pairs)
    columns = tuple((SHORT[which], NAMES[law]) for which, law in pairs)
    notes = (f"{_where(study)} W2: Wasserstein-2, in standard deviations. KS: Kolmogorov-Smirnov. {MEANS}",)
    return Figures("How far the entries are from laws", columns, rows, overall, notes)


def _bits(study: Study, layers: Sequence[Layer]) -> Figures:
    last = study.overall[-1]
    rows = {
        layer.name: tuple(f"{now.bits[code]:.3f}" if now else UNKNOWN for code in CODES)
        for layer in layers
        for now in [layer.at(last.step)]
    }
    overall = tuple(f"{last.bits[code]:.3f}" for code in CODES)
    notes = [
        f"{_where(study)} Lengths of real blocks, with the parameters of GenNorm, Normal or Laplace or the table in "
        "them. Entropy: of the symbols one by one. Plain: what Entropy() takes where no model is named. zstd-1: "
        f"zstandard at level 1. {MEANS}"
    ]
    if last.side:
        notes.append(f"The quantizer's scales are not counted: {last.side:.4f} bits an entry, whatever the code.")
    columns = tuple(CODE_NAMES[code] for code in CODES)
    return Figures(f"Bits an entry, of {study.form.name}", columns, rows, overall, tuple(notes), SHORT_NAMES)


def shown(study: Study, most: int) -> Group:
    """For the terminal: so many layers, the largest, in the order of the model."""
    chosen = study.largest[:most]
    layers = [layer for layer in study.layers if layer in chosen]
    said = [finding.said for finding in findings(study)]
    if len(layers) < len(study.layers):
        said.append(f"The {len(layers)} largest of {len(study.layers)} layers are shown.")
    if study.skipped:
        said.append(left_out(study))
    told = [_table(one) for one in figures(study, layers)]
    return Group(
        Text(heading(study), style="bold"), *(line for table in told for line in ("", table)), "", *map(Text, said)
    )


def heading(study: Study) -> str:
    about = study.captured
    return f"Gradients of {about.workload}, {about.method}, seed {about.seed}"


def _where(study: Study) -> str:
    """Which of the steps figures are of."""
    last, about = study.overall[-1].step, study.captured
    which = "the last that was captured" if last == about.steps[-1] else "the last that laws could be fitted at"
    return f"At step {last:,} of {about.length:,}, {which}."


def left_out(study: Study) -> str:
    """What there is nothing of, by the reason; the page and the JSON name each."""
    reasons = list(study.skipped.values())
    told = [f"{reasons.count(reason)} ({reason})" for reason in dict.fromkeys(reasons)]
    return f"Left out: {', '.join(told)}."


def _share(value: float) -> str:
    return "0" if value == 0 else f"{value:.1%}"


def _table(figures: Figures) -> Table:
    notes = Text("\n".join(figures.notes))
    told = plain_table(title=Text(figures.title), caption=notes, caption_justify="left", show_edge=False)
    told.add_column("layer", overflow="fold", min_width=8)
    for column in figures.columns:
        words = (figures.short.get(word, word) for word in column)
        told.add_column("\n".join(words), justify="right", no_wrap=True)
    for name, row in figures.rows.items():
        told.add_row(Text(name if len(name) <= LETTERS else name.removesuffix(".weight")), *row)
    told.add_section()
    told.add_row(ALL, *figures.overall, style="bold")
    return told
