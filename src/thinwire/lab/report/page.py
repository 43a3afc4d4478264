"""One HTML page that holds everything: it needs no network, and reads well on a phone and on paper."""

from html import escape
from importlib.resources import files

from thinwire.lab.report import looks, units
from thinwire.lab.report.findings import findings
from thinwire.lab.report.looks import Look
from thinwire.lab.report.notes import notes
from thinwire.lab.report.plot import Plot
from thinwire.lab.report.plots import plots
from thinwire.lab.report.summary import Section
from thinwire.lab.report.svg import tag
from thinwire.lab.report.table import columns, heading
from thinwire.lab.runs import Run

MODELLED = tag("span", "modelled", class_="tag")


def page(sections: list[Section]) -> str:
    runs = [run for section in sections for run in section.runs]
    tasks = ", ".join(dict.fromkeys(run.workload for run in runs))
    chosen = looks.looks(sections)
    body = [
        tag(
            "header", tag("div", tag("p", "thinwire", class_="brand"), tag("h1", escape(tasks)), _told(sections, runs))
        ),
        tag(
            "main",
            _contents(sections) if len(sections) > 1 else "",
            *(_section(section, chosen, f"task-{i + 1}") for i, section in enumerate(sections)),
            _methods(sections, chosen),
            _repeat(sections),
            _machine(runs),
            tag(
                "footer",
                "Made by <code>thinwire report</code>. The figures are in the run.json files beside this page.",
            ),
        ),
        tag("script", _resource("page.js")),
    ]
    style = f":root{{{looks.variables(dark=False)}}}" + (
        f"@media screen and (prefers-color-scheme:dark){{:root{{{looks.variables(dark=True)}}}}}"
    )
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        + tag("title", escape(f"thinwire: {tasks}"))
        + tag("style", style, _resource("page.css"))
    )
    return "\n".join(['<!doctype html>\n<html lang="en">', tag("head", head), "<body>", *body, "</body></html>", ""])


def _resource(name: str) -> str:
    return files("thinwire.lab.report").joinpath(name).read_text()


def _told(sections: list[Section], runs: list[Run]) -> str:
    methods = len({run.method for run in runs})
    said = f"{units.counted(methods, 'method')}, {units.counted(len(runs), 'training run')}"
    steps = sorted({run.steps for run in runs})
    said += f", {' or '.join(f'{n:,}' for n in steps)} steps each"
    if any(run.batch for run in runs):
        said += (
            f", batches of {' or '.join(f'{n:,}' for n in sorted({run.batch for run in runs}))} examples over all ranks"
        )
    modelled = " Times on the link are " + MODELLED + ": computed from bytes, not measured."
    some = modelled if any(section.modelled for section in sections) else ""
    return tag("p", escape(said) + "." + some, class_="quiet")


def _contents(sections: list[Section]) -> str:
    links = [tag("li", tag("a", escape(heading(section)), href=f"#task-{i + 1}")) for i, section in enumerate(sections)]
    return tag("nav", tag("ul", *links))


def _section(section: Section, chosen: dict[str, Look], key: str) -> str:
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
        _warnings(section),
        tag("div", *found, class_="cards") if found else "",
        _figures(section, chosen),
        tag("ul", *(tag("li", note) for note in notes(section)), class_="notes"),
        _legend(section, chosen),
        tag("div", *drawn, class_="plots"),
        id=key,
        class_="task",
    )


def _warnings(section: Section) -> str:
    said: dict[str, list[str]] = {}
    for entry in section.entries:
        for warning in dict.fromkeys(warning for run in entry.runs for warning in run.warnings):
            said.setdefault(warning, []).append(entry.label)
    for label, seeds in section.missing().items():
        said.setdefault(f"not there yet: seed {', '.join(map(str, seeds))}", []).append(label)
    told = [tag("p", tag("b", escape(", ".join(labels))), f": {escape(text)}") for text, labels in said.items()]
    return tag("div", *told, class_="warnings") if told else ""


def _figures(section: Section, chosen: dict[str, Look]) -> str:
    told = columns(section)
    head = tag("tr", tag("th", "method"), *(tag("th", escape(" ".join(column.name(section)))) for column in told))
    rows = [
        tag(
            "tr",
            tag("th", tag("div", _swatch(chosen[entry.label]), tag("span", escape(entry.label))), scope="row"),
            *(tag("td", escape(column.say(section, entry))) for column in told),
        )
        for entry in section.entries
    ]
    return tag("div", tag("table", tag("thead", head), tag("tbody", *rows), class_="figures"), class_="scroll")


def _swatch(look: Look) -> str:
    """Its colour; a ring stands for a line with gaps."""
    return tag("span", class_="swatch ring" if look.dash else "swatch", style=f"--c:{look.css}")


def _legend(section: Section, chosen: dict[str, Look]) -> str:
    buttons = [
        tag(
            "button",
            _swatch(chosen[entry.label]) + escape(entry.label),
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


def _methods(sections: list[Section], chosen: dict[str, Look]) -> str:
    notations: dict[str, str] = {}
    for section in sections:
        for entry in section.entries:
            notations.setdefault(entry.label, entry.method)
    told = [
        tag("dt", _swatch(chosen[label]) + escape(label)) + tag("dd", tag("code", escape(notation)))
        for label, notation in notations.items()
    ]
    return tag("section", tag("h2", "The methods"), tag("dl", *told, class_="methods-list"), id="methods")


def _repeat(sections: list[Section]) -> str:
    entries = [entry for section in sections for entry in section.entries]
    commands = dict.fromkeys(entry.runs[0].command for entry in entries if entry.runs[0].command)
    if not commands:
        return ""
    others = sorted({run.seed for entry in entries for run in entry.runs[1:]})
    said = "On the same versions, bytes, losses and metrics come out the same; seconds depend on the machine."
    if others:
        said += f" Each method's first seed is shown; for the others, --seed {', '.join(map(str, others))}."
    return tag(
        "section",
        tag("h2", "How to repeat it"),
        tag("p", said),
        tag("ul", *(tag("li", tag("code", escape(command))) for command in commands), class_="commands"),
        id="repeat",
    )


def _machine(runs: list[Run]) -> str:
    facts: dict[str, list[str]] = {}
    for run in runs:
        about = {"thinwire": run.version, "commit": run.commit or "not known"} | run.machine
        for name, value in about.items():
            if value not in facts.setdefault(name, []):
                facts[name].append(value)
    told = [tag("dt", escape(name)) + tag("dd", escape("; ".join(values))) for name, values in facts.items()]
    return tag("section", tag("h2", "The machine and the versions"), tag("dl", *told, class_="about"), id="machine")
