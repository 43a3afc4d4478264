"""Warnings and remarks on the runs themselves: missing or duplicate seeds, interruptions, thinwire's own warnings."""

from collections import Counter
from html import escape

from thinwire.lab.report.charts.svg import tag
from thinwire.lab.report.number_format import enumerated
from thinwire.lab.report.summary import Section

FEW = 3  # up to this many methods with missing seeds are a warning each, more are one remark


def warnings(section: Section) -> str:
    labels_by_warning: dict[str, list[str]] = {}
    for entry in section.entries:
        for warning in dict.fromkeys(warning for run in entry.runs for warning in run.warnings):
            labels_by_warning.setdefault(warning, []).append(entry.label)
    if _few_missing(section):
        for label, seeds in section.missing().items():
            labels_by_warning.setdefault(f"no run yet for seed {', '.join(map(str, seeds))}", []).append(label)
    for entry in section.entries:
        for seed, count in Counter(run.seed for run in entry.runs).items():
            if count > 1:
                warning = f"seed {seed} has {count} runs, and each counts in the mean"
                labels_by_warning.setdefault(warning, []).append(entry.label)
    paragraphs = [
        tag("p", tag("b", escape(", ".join(labels))), f": {escape(text)}") for text, labels in labels_by_warning.items()
    ]
    return tag("div", *paragraphs, class_="warnings") if paragraphs else ""


def remarks(section: Section) -> str:
    """One line each for seeds that many methods lack, and for runs that were interrupted."""
    lines = [text for text in (_missing(section), _resumed(section)) if text]
    return "".join(tag("p", escape(text), class_="quiet") for text in lines)


def _few_missing(section: Section) -> bool:
    return len(section.missing()) <= FEW


def _missing(section: Section) -> str:
    by_seeds: dict[str, list[str]] = {}
    for label, seeds in {} if _few_missing(section) else section.missing().items():
        by_seeds.setdefault(", ".join(map(str, seeds)), []).append(label)
    parts = [f"seed {seeds} of {', '.join(labels)}" for seeds, labels in by_seeds.items()]
    return f"No run yet for {'; '.join(parts)}." if parts else ""


def _resumed(section: Section) -> str:
    parts = []
    for entry in section.entries:
        for run in entry.runs:
            steps = [f"{at['step']:,}" for at in run.resumed]
            if steps:
                parts.append(f"{entry.label}, seed {run.seed}, after step {enumerated(steps)}")
    return f"Resumed after an interruption: {'; '.join(parts)}." if parts else ""
