"""The page that holds everything."""

from collections.abc import Sequence
from html import escape

from thinwire.lab.recording.runs import Run
from thinwire.lab.report import number_format as units
from thinwire.lab.report.charts import style as looks
from thinwire.lab.report.charts.style import Look
from thinwire.lab.report.charts.svg import tag
from thinwire.lab.report.elements import document, swatch
from thinwire.lab.report.fitted import Fitted
from thinwire.lab.report.summary import Section
from thinwire.lab.report.table import heading
from thinwire.lab.report.task import MODELLED, task


def page(sections: list[Section], laws: Sequence[Fitted] = ()) -> str:
    runs = [run for section in sections for run in section.runs]
    tasks = ", ".join(dict.fromkeys(run.workload for run in runs))
    chosen = looks.looks(sections)
    return document(
        tasks,
        _told(sections, runs),
        _contents(sections) if len(sections) > 1 else "",
        *(task(section, chosen, f"task-{i + 1}") for i, section in enumerate(sections)),
        *map(_laws, laws),
        _methods(sections, chosen),
        _repeat(sections),
        _machine(runs),
        tag("footer", "Made by <code>thinwire report</code>. The figures are in the run.json files beside this page."),
    )


def _laws(fitted: Fitted) -> str:
    summary = tag("summary", escape(fitted.title))
    return tag("section", tag("h2", fitted.heading), tag("details", summary, fitted.markup), class_="laws")


def _told(sections: list[Section], runs: list[Run]) -> str:
    methods = len({run.method for run in runs})
    rates = [rate for section in sections for entry in section.entries for rate in entry.tried]
    counted = _different(runs)
    tried = _different([*runs, *(run for rate in rates for run in rate.runs)]) - counted
    others = f" and {tried:,} with other learning rates" if tried else ""
    said = f"{units.counted(methods, 'method')}, {units.counted(counted, 'training run')}{others}, thinwire "
    said += " or ".join(dict.fromkeys(run.version for run in runs)) + "."
    machines = dict.fromkeys(", ".join(f"{name} {value}" for name, value in run.machine.items()) for run in runs)
    told = [f"On {machine}." for machine in machines if machine]
    modeled = f" Times on the link are {MODELLED}: computed from bytes, not measured."
    some = modeled if any(section.modeled for section in sections) else ""
    return tag("p", escape(" ".join([said, *told])) + some, class_="quiet")


def _different(runs: list[Run]) -> int:
    """How many runs there are; one whose time is modeled on several links is one, with the same metrics."""
    return len({id(run.metrics) for run in runs})


def _contents(sections: list[Section]) -> str:
    links = [tag("li", tag("a", escape(heading(section)), href=f"#task-{i + 1}")) for i, section in enumerate(sections)]
    return tag("nav", tag("ul", *links))


def _methods(sections: list[Section], chosen: dict[str, Look]) -> str:
    notations = dict.fromkeys((entry.label, entry.method) for section in sections for entry in section.entries)
    told = [
        tag("dt", swatch(chosen[label]) + escape(label)) + tag("dd", tag("code", escape(notation)))
        for label, notation in notations
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
