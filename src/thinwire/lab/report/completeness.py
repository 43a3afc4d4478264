"""What a reader should know of the runs themselves: warnings, seeds that are missing or twice there, interruptions."""

from collections import Counter
from html import escape

from thinwire.lab.report.charts.svg import tag
from thinwire.lab.report.number_format import spoken
from thinwire.lab.report.summary import Section

FEW = 3  # methods that lack seeds, each of which is worth a warning


def warnings(section: Section) -> str:
    said: dict[str, list[str]] = {}
    for entry in section.entries:
        for warning in dict.fromkeys(warning for run in entry.runs for warning in run.warnings):
            said.setdefault(warning, []).append(entry.label)
    if _few_missing(section):
        for label, seeds in section.missing().items():
            said.setdefault(f"not there yet: seed {', '.join(map(str, seeds))}", []).append(label)
    for entry in section.entries:
        for seed, times in Counter(run.seed for run in entry.runs).items():
            if times > 1:
                said.setdefault(f"seed {seed} is there {times} times, and counts as often", []).append(entry.label)
    told = [tag("p", tag("b", escape(", ".join(labels))), f": {escape(text)}") for text, labels in said.items()]
    return tag("div", *told, class_="warnings") if told else ""


def remarks(section: Section) -> str:
    """Seeds that many methods lack, and runs that were interrupted: a quiet line each."""
    told = [text for text in (_missing(section), _resumed(section)) if text]
    return "".join(tag("p", escape(text), class_="quiet") for text in told)


def _few_missing(section: Section) -> bool:
    return len(section.missing()) <= FEW


def _missing(section: Section) -> str:
    by_seeds: dict[str, list[str]] = {}
    for label, seeds in {} if _few_missing(section) else section.missing().items():
        by_seeds.setdefault(", ".join(map(str, seeds)), []).append(label)
    told = [f"seed {seeds} of {', '.join(labels)}" for seeds, labels in by_seeds.items()]
    return f"Not there yet: {'; '.join(told)}." if told else ""


def _resumed(section: Section) -> str:
    told = []
    for entry in section.entries:
        for run in entry.runs:
            steps = [f"{at['step']:,}" for at in run.resumed]
            if steps:
                told.append(f"{entry.label}, seed {run.seed}, after step {spoken(steps)}")
    return f"Resumed after an interruption: {'; '.join(told)}." if told else ""
