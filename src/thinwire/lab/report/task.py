"""A task on the page: the findings, the table, what its words mean, and the plots."""

from collections.abc import Callable
from html import escape

from thinwire.lab.report import adaptation, completeness, rates
from thinwire.lab.report import rank_section as ranks
from thinwire.lab.report import traffic_by_link as ways
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
    "<b>times smaller</b>: the gradients' bytes over the payload's. In the table, over the whole training, by kind of "
    "layer; in the plots, of rank 0, in the steps since the evaluation before.",
    "<b>left unsaid</b>: the norm of what rank 0 still has to say of a layer, over that of the gradient that all "
    "ranks agreed on in that step, before any clipping. The plots are of the layers of which it is remembered.",
    "<b>small ones</b>: small tensors that share a message. Which they are depends on the method. <b>joined ones</b>: "
    "tensors of any size that a method takes together.",
)
MODELLED = tag("span", "modeled", class_="tag")


def task(section: Section, chosen: dict[str, Look], key: str) -> str:
    """All that is told of a section; the key begins the names of its plots."""
    drawn = [figure(plot, key) for plot in plots(section, chosen)]
    found = [
        card(finding.figure, finding.method, finding.sentence, chosen[finding.method]) for finding in findings(section)
    ]
    return tag(
        "section",
        tag("h2", escape(heading(section).removesuffix(" (modeled)")), " " + MODELLED if section.modeled else ""),
        _told(section),
        completeness.remarks(section),
        completeness.warnings(section),
        cards(found),
        _figures(section, chosen),
        tag("ul", *(tag("li", note) for note in notes(section)), class_="notes"),
        _legend(section, chosen),
        tag("div", *drawn, class_="plots"),
        rates.tried(section, chosen),
        _ways(section, chosen),
        _factored(section, chosen, key),
        _layers(section, chosen, key),
        id=key,
        class_="task",
    )


def _told(section: Section) -> str:
    steps = " or ".join(f"{steps:,}" for steps in sorted({run.steps for run in section.runs}))
    said = [f"{steps} steps"]
    if section.first.batch:
        said.append(f"batches of {section.first.batch:,} examples over all ranks")
    if section.first.parameters:
        said.append(f"{section.first.parameters:,} parameters")
    if section.first.budget:
        said.append(f"budget {section.first.budget}")
    said.append(("seeds " if len(section.seeds) > 1 else "seed ") + ", ".join(map(str, section.seeds)))
    return tag("p", escape(", ".join(said)) + ".", class_="quiet")


def _figures(section: Section, chosen: dict[str, Look]) -> str:
    told = columns(section)
    head = ["method", *(" ".join(column.name(section)) for column in told)]
    rows = [_row(entry.label, chosen, [column.say(section, entry) for column in told]) for entry in section.entries]
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


def _ways(section: Section, chosen: dict[str, Look]) -> str:
    """Who speaks with whom, of those methods that do not speak with all."""
    told = _sentences(section, chosen, ways.told)
    return tag("h3", "Who speaks with whom") + told if told else ""


def _factored(section: Section, chosen: dict[str, Look], key: str) -> str:
    """The phases of those methods that factor layers."""
    told = _sentences(section, chosen, ranks.told)
    drawn = tag("div", *(figure(plot, key) for plot in ranks.plots(section)), class_="plots")
    return tag("h3", "Layers that are factored") + told + drawn if told else ""


def _sentences(section: Section, chosen: dict[str, Look], say: Callable[[Entry], str]) -> str:
    """What there is to say of each method, as a list; empty if that is nothing."""
    told = [
        tag("li", swatch(chosen[entry.label]), tag("b", escape(entry.label)), f": {escape(said)}")
        for entry in section.entries
        if (said := say(entry))
    ]
    return tag("ul", *told, class_="notes ways") if told else ""


def _layers(section: Section, chosen: dict[str, Look], key: str) -> str:
    """How methods adapt to the layers, of those runs that tell."""
    ratios = {entry.label: told for entry in section.senders if (told := entry.kind_ratios())}
    if not ratios:
        return ""
    overall = {entry.label: entry.ratio.mean for entry in section.entries}
    kinds = sorted({kind for told in ratios.values() for kind in told}, key=kind_order)
    head = ["times smaller", *kinds, "all layers"]
    rows = []
    for label, told in ratios.items():
        figures = [f"{told[kind].mean:.1f}x" if kind in told else UNKNOWN for kind in kinds]
        rows.append(_row(label, chosen, [*figures, f"{overall[label]:.1f}x"]))
    return "".join(
        [
            tag("h3", "Layer by layer"),
            table(head, rows),
            tag("ul", *(tag("li", note) for note in LAYERS), class_="notes"),
            tag("div", *(figure(plot, key) for plot in adaptation.plots(section)), class_="plots"),
        ]
    )
