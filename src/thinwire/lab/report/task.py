"""A task on the page: the findings, the table, what its words mean, and the plots."""

from collections import Counter
from html import escape

from thinwire.lab.report.findings import findings
from thinwire.lab.report.looks import Look
from thinwire.lab.report.notes import notes
from thinwire.lab.report.plot import Plot
from thinwire.lab.report.plots import plots
from thinwire.lab.report.summary import Section
from thinwire.lab.report.svg import tag
from thinwire.lab.report.table import columns, heading

MODELLED = tag("span", "modelled", class_="tag")


def task(section: Section, chosen: dict[str, Look], key: str) -> str:
    """All that is told of a section; the key begins the names of its plots."""
    drawn = [_figure(plot, key) for plot in plots(section, chosen)]
    found = [
        tag(
            "div",
            tag("strong", escape(finding.figure)),
            tag("b", escape(finding.method)),
            tag("p", escape(finding.sentence)),
            class_="card",
            style=f"--c:{chosen[finding.method].css}",
        )
        for finding in findings(section)
    ]
    return tag(
        "section",
        tag("h2", escape(heading(section).removesuffix(" (modelled)")), " " + MODELLED if section.modelled else ""),
        _told(section),
        _warnings(section),
        tag("div", *found, class_="cards") if found else "",
        _figures(section, chosen),
        tag("ul", *(tag("li", note) for note in notes(section)), class_="notes"),
        _legend(section, chosen),
        tag("div", *drawn, class_="plots"),
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


def _warnings(section: Section) -> str:
    said: dict[str, list[str]] = {}
    for entry in section.entries:
        for warning in dict.fromkeys(warning for run in entry.runs for warning in run.warnings):
            said.setdefault(warning, []).append(entry.label)
    for label, seeds in section.missing().items():
        said.setdefault(f"not there yet: seed {', '.join(map(str, seeds))}", []).append(label)
    for entry in section.entries:
        for seed, times in Counter(run.seed for run in entry.runs).items():
            if times > 1:
                said.setdefault(f"seed {seed} is there {times} times, and counts as often", []).append(entry.label)
    told = [tag("p", tag("b", escape(", ".join(labels))), f": {escape(text)}") for text, labels in said.items()]
    return tag("div", *told, class_="warnings") if told else ""


def _figures(section: Section, chosen: dict[str, Look]) -> str:
    told = columns(section)
    head = tag("tr", tag("th", "method"), *(tag("th", escape(" ".join(column.name(section)))) for column in told))
    rows = [
        tag(
            "tr",
            tag("th", tag("div", swatch(chosen[entry.label]), tag("span", escape(entry.label))), scope="row"),
            *(tag("td", escape(column.say(section, entry))) for column in told),
        )
        for entry in section.entries
    ]
    return tag("div", tag("table", tag("thead", head), tag("tbody", *rows), class_="figures"), class_="scroll")


def swatch(look: Look) -> str:
    """Its colour; a ring stands for a line with gaps."""
    return tag("span", class_="swatch ring" if look.dash else "swatch", style=f"--c:{look.css}")


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


def _figure(plot: Plot, key: str) -> str:
    legend = [
        tag("span", tag("span", class_="swatch", style=f"--c:{colour}") + escape(name)) for name, colour in plot.legend
    ]
    return tag(
        "figure",
        tag("figcaption", escape(plot.title)),
        tag("div", *legend, class_="legend") if legend else "",
        plot.drawing,
        tag("p", escape(plot.note)) if plot.note else "",
        id=f"{key}-{plot.key}",
    )
