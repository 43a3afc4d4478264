"""The HTML page of the report."""

from collections.abc import Sequence
from html import escape

from thinwire.lab.recording.runs import Run
from thinwire.lab.report import number_format as units
from thinwire.lab.report.charts import style as looks
from thinwire.lab.report.charts.style import Look
from thinwire.lab.report.charts.svg import tag
from thinwire.lab.report.elements import document, swatch
from thinwire.lab.report.embedded_pages import EmbeddedPage
from thinwire.lab.report.summary import Section
from thinwire.lab.report.table import heading
from thinwire.lab.report.task import MODELED, task


def page(sections: list[Section], embedded: Sequence[EmbeddedPage] = ()) -> str:
    runs = [run for section in sections for run in section.runs]
    tasks = ", ".join(dict.fromkeys(run.workload for run in runs))
    chosen = looks.looks(sections)
    return document(
        tasks,
        _overview(sections, runs),
        _contents(sections) if len(sections) > 1 else "",
        *(task(section, chosen, f"task-{i + 1}") for i, section in enumerate(sections)),
        *map(_embedded, embedded),
        _methods(sections, chosen),
        _repeat(sections),
        _machine(runs),
        tag("footer", "Made by <code>thinwire report</code>. The figures are in the run.json files beside this page."),
    )


def _embedded(page: EmbeddedPage) -> str:
    summary = tag("summary", escape(page.title))
    return tag("section", tag("h2", page.heading), tag("details", summary, page.markup), class_="embedded")


def _overview(sections: list[Section], runs: list[Run]) -> str:
    methods = len({run.method for run in runs})
    rates = [rate for section in sections for entry in section.entries for rate in entry.tried]
    count = _distinct(runs)
    tried = _distinct([*runs, *(run for rate in rates for run in rate.runs)]) - count
    others = f" and {tried:,} with other learning rates" if tried else ""
    counts = f"{units.counted(methods, 'method')}, {units.counted(count, 'training run')}{others}, thinwire "
    counts += " or ".join(dict.fromkeys(run.version for run in runs)) + "."
    machines = dict.fromkeys(", ".join(f"{name} {value}" for name, value in run.machine.items()) for run in runs)
    hosts = [f"On {machine}." for machine in machines if machine]
    modeled = f" Times on the link are {MODELED}: computed from bytes, not measured."
    note = modeled if any(section.modeled for section in sections) else ""
    return tag("p", escape(" ".join([counts, *hosts])) + note, class_="quiet")


def _distinct(runs: list[Run]) -> int:
    """The number of training runs; one that is shown on several links counts once."""
    return len({id(run.metrics) for run in runs})


def _contents(sections: list[Section]) -> str:
    links = [tag("li", tag("a", escape(heading(section)), href=f"#task-{i + 1}")) for i, section in enumerate(sections)]
    return tag("nav", tag("ul", *links))


def _methods(sections: list[Section], chosen: dict[str, Look]) -> str:
    notations = dict.fromkeys((entry.label, entry.method) for section in sections for entry in section.entries)
    items = [
        tag("dt", swatch(chosen[label]) + escape(label)) + tag("dd", tag("code", escape(notation)))
        for label, notation in notations
    ]
    return tag("section", tag("h2", "Methods"), tag("dl", *items, class_="methods-list"), id="methods")


def _repeat(sections: list[Section]) -> str:
    entries = [entry for section in sections for entry in section.entries]
    commands = dict.fromkeys(entry.runs[0].command for entry in entries if entry.runs[0].command)
    if not commands:
        return ""
    others = sorted({run.seed for entry in entries for run in entry.runs[1:]})
    note = "With the same versions, bytes, losses and metrics are the same; times depend on the machine."
    if others:
        note += (
            f" The commands have each method's first seed; for the others, use --seed {', '.join(map(str, others))}."
        )
    return tag(
        "section",
        tag("h2", "How to reproduce"),
        tag("p", note),
        tag("ul", *(tag("li", tag("code", escape(command))) for command in commands), class_="commands"),
        id="repeat",
    )


def _machine(runs: list[Run]) -> str:
    facts: dict[str, list[str]] = {}
    for run in runs:
        about = {"thinwire": run.version, "commit": run.commit or "unknown"} | run.machine
        for name, value in about.items():
            if value not in facts.setdefault(name, []):
                facts[name].append(value)
    items = [tag("dt", escape(name)) + tag("dd", escape("; ".join(values))) for name, values in facts.items()]
    return tag("section", tag("h2", "Machine and versions"), tag("dl", *items, class_="about"), id="machine")
