"""The tables of `thinwire fit`: fitted distributions, their distances, and code lengths."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Group
from rich.table import Table
from rich.text import Text

from thinwire.lab.fit.code_lengths import CODES, ENTROPY, HUFFMAN, PLAIN, RANS, ZSTD
from thinwire.lab.fit.fit_findings import NAMES, findings
from thinwire.lab.fit.fit_study import DISTANCES, DISTRIBUTIONS, Layer, Study
from thinwire.lab.report.columns import UNKNOWN
from thinwire.lab.tables import plain_table

SHORT = {"wasserstein": "W2", "kolmogorov": "KS"}
CODE_NAMES = {
    ENTROPY: ("entropy",),
    **{code: ("Huffman", NAMES[model]) for model, code in HUFFMAN.items()},
    **{code: ("rANS", NAMES[model]) for model, code in RANS.items()},
    PLAIN: ("plain",),
    ZSTD: (ZSTD,),
}
SHORT_NAMES = {"entropy": "en-\ntropy", "Huffman": "Huff", "GenNorm": "GenN", "Normal": "Norm", "Laplace": "Lapl"}
SHORT_NAMES[ZSTD] = "zstd\n-1"
LETTERS = 17  # characters of a layer's name that fit next to the figures in 80 columns
ALL = "all layers"
MEANS = "For all layers: means weighted by the number of entries."


@dataclass(frozen=True)
class Figures:
    """A table with a row per layer and one for all layers; column names are one string per line."""

    title: str
    columns: tuple[tuple[str, ...], ...]
    rows: Mapping[str, tuple[str, ...]]
    overall: tuple[str, ...]
    notes: tuple[str, ...]
    short: Mapping[str, str] = field(default_factory=dict)  # abbreviations in column names, for 80 columns


def figures(study: Study, layers: Sequence[Layer]) -> list[Figures]:
    return [_distributions(study, layers), _distances(study, layers), _bits(study, layers)]


def _distributions(study: Study, layers: Sequence[Layer]) -> Figures:
    first, last = study.overall[0], study.overall[-1]
    rows = {}
    for layer in layers:
        start, end = layer.at(first.step), layer.at(last.step)
        rows[layer.name] = (
            f"{layer.entries:,}",
            _share(end.zeros) if end else UNKNOWN,
            f"{start.shape:.2f}" if start else UNKNOWN,
            f"{end.shape:.2f}" if end else UNKNOWN,
            f"{end.fits['gennorm'].distribution.scale:.1e}" if end else UNKNOWN,
            f"{end.deviation:.1e}" if end else UNKNOWN,
        )
    overall = (f"{last.entries:,}", _share(last.zeros), f"{first.shape:.2f}", f"{last.shape:.2f}", "", "")
    columns = (("entries",), ("zeros",), ("shape,", "first"), ("shape,", "last"), ("scale",), ("deviation",))
    notes = (
        f"{_where(study)} Zeros: entries that are exactly zero, left out of all fits. Shape and scale are GenNorm's, "
        f"by maximum likelihood; the first shape is at step {first.step:,}. For all layers: the median shape.",
    )
    return Figures("Distribution of the entries", columns, rows, overall, notes)


def _distances(study: Study, layers: Sequence[Layer]) -> Figures:
    pairs = [(which, name) for which in DISTANCES for name in DISTRIBUTIONS]
    last = study.overall[-1]
    rows = {
        layer.name: tuple(f"{end.distance(which, name):.3f}" if end else UNKNOWN for which, name in pairs)
        for layer in layers
        for end in [layer.at(last.step)]
    }
    overall = tuple(f"{last.distances[which][name]:.3f}" for which, name in pairs)
    columns = tuple((SHORT[which], NAMES[name]) for which, name in pairs)
    notes = (f"{_where(study)} W2: Wasserstein-2, in standard deviations. KS: Kolmogorov-Smirnov. {MEANS}",)
    return Figures("Distance of the entries to the distributions", columns, rows, overall, notes)


def _bits(study: Study, layers: Sequence[Layer]) -> Figures:
    last = study.overall[-1]
    rows = {
        layer.name: tuple(f"{end.bits[code]:.3f}" if end else UNKNOWN for code in CODES)
        for layer in layers
        for end in [layer.at(last.step)]
    }
    overall = tuple(f"{last.bits[code]:.3f}" for code in CODES)
    notes = [
        f"{_where(study)} Lengths of real blocks, with the parameters of GenNorm, Normal or Laplace, or the table. "
        "Entropy: the empirical entropy of the symbols. Plain: Entropy() with its default model. zstd-1: zstandard at "
        f"level 1. {MEANS}"
    ]
    if last.side:
        notes.append(f"Not counted: the quantizer's scales, {last.side:.4f} bits per entry with every code.")
    columns = tuple(CODE_NAMES[code] for code in CODES)
    return Figures(f"Bits per entry of {study.form.name}", columns, rows, overall, tuple(notes), SHORT_NAMES)


def shown(study: Study, most: int) -> Group:
    """The tables for the terminal, with the `most` largest layers in the order of the model, and the findings."""
    chosen = study.largest[:most]
    layers = [layer for layer in study.layers if layer in chosen]
    sentences = [finding.text for finding in findings(study)]
    if len(layers) < len(study.layers):
        sentences.append(f"The {len(layers)} largest of {len(study.layers)} layers are shown.")
    if study.skipped:
        sentences.append(skipped_text(study))
    tables = [_table(one) for one in figures(study, layers)]
    return Group(
        Text(heading(study), style="bold"),
        *(line for table in tables for line in ("", table)),
        "",
        *map(Text, sentences),
    )


def heading(study: Study) -> str:
    about = study.captured
    return f"Gradients of {about.workload}, {about.method}, seed {about.seed}"


def _where(study: Study) -> str:
    """The step that the figures are of."""
    last, about = study.overall[-1].step, study.captured
    which = "the last captured step" if last == about.steps[-1] else "the last step with a fit"
    return f"At step {last:,} of {about.length:,}, {which}."


def skipped_text(study: Study) -> str:
    """The number of skipped tensors by reason; the page and the JSON list them."""
    reasons = list(study.skipped.values())
    counts = [f"{reasons.count(reason)} ({reason})" for reason in dict.fromkeys(reasons)]
    return f"Skipped: {', '.join(counts)}."


def _share(value: float) -> str:
    return "0" if value == 0 else f"{value:.1%}"


def _table(figures: Figures) -> Table:
    notes = Text("\n".join(figures.notes))
    table = plain_table(title=Text(figures.title), caption=notes, caption_justify="left", show_edge=False)
    table.add_column("layer", overflow="fold", min_width=8)
    for column in figures.columns:
        words = (figures.short.get(word, word) for word in column)
        table.add_column("\n".join(words), justify="right", no_wrap=True)
    for name, row in figures.rows.items():
        table.add_row(Text(name if len(name) <= LETTERS else name.removesuffix(".weight")), *row)
    table.add_section()
    table.add_row(ALL, *figures.overall, style="bold")
    return table
