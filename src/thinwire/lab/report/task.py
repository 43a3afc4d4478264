"""The section of a task on the page: findings, table, notes and plots."""

from collections.abc import Callable
from html import escape

from thinwire.lab.report import adaptation, completeness, rates
from thinwire.lab.report import rank_section as ranks
from thinwire.lab.report import traffic_by_link as traffic
from thinwire.lab.report.charts.style import Look, kind_order
from thinwire.lab.report.charts.svg import tag
from thinwire.lab.report.columns import UNKNOWN, columns
from thinwire.lab.report.elements import card, cards, figure, row, swatch, table
from thinwire.lab.report.findings import findings
from thinwire.lab.report.notes import notes
from thinwire.lab.report.plots import plots
from thinwire.lab.report.summary import Entry, Section
from thinwire.lab.report.table import heading

LAYERS = (
    "<b>compression ratio</b>: the gradients' bytes over the payload's. The table has the ratio over the whole "
    "training, by kind of layer; the plots have rank 0's ratio in the steps since the previous evaluation.",
    "<b>residual</b>: the norm of rank 0's residual for a layer, over the norm of the reduced gradient in that step, "
    "before any clipping. The plots show the layers that have a residual.",
    "<b>small ones</b>: small tensors fused into one message. Which ones depends on the method. <b>joined ones</b>: "
    "tensors of any size that a method fuses.",
)
MODELED = tag("span", "modeled", class_="tag")


def task(section: Section, chosen: dict[str, Look], key: str) -> str:
    """A section as HTML; the key is the prefix of its plots' ids."""
    figures = [figure(plot, key) for plot in plots(section, chosen)]
    found = [
        card(finding.figure, finding.method, finding.sentence, chosen[finding.method]) for finding in findings(section)
    ]
    return tag(
        "section",
        tag("h2", escape(heading(section).removesuffix(" (modeled)")), " " + MODELED if section.modeled else ""),
        _setup(section),
        completeness.remarks(section),
        completeness.warnings(section),
        cards(found),
        _figures(section, chosen),
        tag("ul", *(tag("li", note) for note in notes(section)), class_="notes"),
        _legend(section, chosen),
        tag("div", *figures, class_="plots"),
        rates.tried(section, chosen),
        _traffic(section, chosen),
        _factored(section, chosen, key),
        _layers(section, chosen, key),
        id=key,
        class_="task",
    )


def _setup(section: Section) -> str:
    steps = " or ".join(f"{steps:,}" for steps in sorted({run.steps for run in section.runs}))
    parts = [f"{steps} steps"]
    if section.first.batch:
        parts.append(f"batches of {section.first.batch:,} examples over all ranks")
    if section.first.parameters:
        parts.append(f"{section.first.parameters:,} parameters")
    if section.first.budget:
        parts.append(f"budget {section.first.budget}")
    parts.append(("seeds " if len(section.seeds) > 1 else "seed ") + ", ".join(map(str, section.seeds)))
    return tag("p", escape(", ".join(parts)) + ".", class_="quiet")


def _figures(section: Section, chosen: dict[str, Look]) -> str:
    shown = columns(section)
    head = ["method", *(" ".join(column.name(section)) for column in shown)]
    rows = [_row(entry.label, chosen, [column.text(section, entry) for column in shown]) for entry in section.entries]
    return table(head, rows)


def _row(label: str, chosen: dict[str, Look], figures: list[str]) -> str:
    return row(tag("div", swatch(chosen[label]), tag("span", escape(label))), figures)


def _legend(section: Section, chosen: dict[str, Look]) -> str:
    buttons = [
        tag(
            "button",
            swatch(chosen[entry.label]) + escape(entry.label),
            type="button",
            aria_pressed="true",
            data_series=entry.label,
            style=f"--c:{chosen[entry.label].css}",
            title="show or hide",
        )
        for entry in section.entries
    ]
    return tag("div", *buttons, class_="legend methods")


def _traffic(section: Section, chosen: dict[str, Look]) -> str:
    """The traffic by link, of methods that do not exchange with all ranks."""
    sentences = _sentences(section, chosen, traffic.sentences)
    return tag("h3", "Traffic by link") + sentences if sentences else ""


def _factored(section: Section, chosen: dict[str, Look], key: str) -> str:
    """The phases of methods that factor layers, and the ranks of the factors."""
    sentences = _sentences(section, chosen, ranks.sentence)
    figures = tag("div", *(figure(plot, key) for plot in ranks.plots(section)), class_="plots")
    return tag("h3", "Factored layers") + sentences + figures if sentences else ""


def _sentences(section: Section, chosen: dict[str, Look], describe: Callable[[Entry], str]) -> str:
    """A list with the description of each method that has one; empty if none has."""
    items = [
        tag("li", swatch(chosen[entry.label]), tag("b", escape(entry.label)), f": {escape(text)}")
        for entry in section.entries
        if (text := describe(entry))
    ]
    return tag("ul", *items, class_="notes traffic") if items else ""


def _layers(section: Section, chosen: dict[str, Look], key: str) -> str:
    """The compression by layer, of the runs that recorded their layers."""
    ratios = {entry.label: by_kind for entry in section.senders if (by_kind := entry.kind_ratios())}
    if not ratios:
        return ""
    overall = {entry.label: entry.ratio.mean for entry in section.entries}
    kinds = sorted({kind for by_kind in ratios.values() for kind in by_kind}, key=kind_order)
    head = ["compression ratio", *kinds, "all layers"]
    rows = []
    for label, by_kind in ratios.items():
        figures = [f"{by_kind[kind].mean:.1f}x" if kind in by_kind else UNKNOWN for kind in kinds]
        rows.append(_row(label, chosen, [*figures, f"{overall[label]:.1f}x"]))
    return "".join(
        [
            tag("h3", "Compression by layer"),
            table(head, rows),
            tag("ul", *(tag("li", note) for note in LAYERS), class_="notes"),
            tag("div", *(figure(plot, key) for plot in adaptation.plots(section)), class_="plots"),
        ]
    )
