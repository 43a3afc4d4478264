"""The learning rates that were tried: a table on the page, a line in the terminal."""

from html import escape

from thinwire.lab.recording.runs import validation_name
from thinwire.lab.report.charts.style import Look
from thinwire.lab.report.charts.svg import tag
from thinwire.lab.report.columns import UNKNOWN
from thinwire.lab.report.elements import row, swatch, table
from thinwire.lab.report.number_format import metric_name, metric_text
from thinwire.lab.report.summary import Entry, Section
from thinwire.lab.report.tuning import Rate

NOTE = (
    "For each method, the report uses the learning rate with the best validation metric, with all its seeds. The "
    "metrics here are means over the seeds that all rates of a method have. If these have no validation metric, or the "
    "same, the rate with the most seeds is used, then the one nearest to the workload's own."
)


def tried(section: Section, chosen: dict[str, Look]) -> str:
    """A table of all learning rates that were tried; empty if no method was tuned."""
    tuned = [entry for entry in section.entries if entry.tried]
    if not tuned:
        return ""
    metric, validation = (metric_name(name) for name in (section.first.metric, validation_name(section.first.metric)))
    head = ["method", "lr", validation, metric, "seeds", "chosen"]
    rows = [
        row(tag("div", swatch(chosen[entry.label]), tag("span", escape(entry.label))), _figures(entry, rate))
        for entry in tuned
        for rate in entry.tried
    ]
    return tag("h3", "Learning rates tried") + table(head, rows) + tag("p", NOTE, class_="quiet")


def _figures(entry: Entry, rate: Rate) -> list[str]:
    metric = rate.runs[0].metric
    validation = UNKNOWN if rate.validation is None else metric_text(metric, rate.validation)
    seeds = ", ".join(str(run.seed) for run in rate.runs)
    return [
        _factor(rate.scale),
        validation,
        metric_text(metric, rate.metric),
        seeds,
        "yes" if rate.scale == entry.lr_scale else "",
    ]


def rates_text(section: Section) -> str:
    """The learning rates of methods that were tuned or scaled, and all that were tried."""
    labels_by_scale: dict[float, list[str]] = {}
    for entry in section.entries:
        if entry.tried or entry.lr_scale != 1:
            labels_by_scale.setdefault(entry.lr_scale, []).append(entry.label)
    chosen = [f"{_factor(scale)} for {', '.join(labels)}" for scale, labels in sorted(labels_by_scale.items())]
    scales = sorted({rate.scale for entry in section.entries for rate in entry.tried})
    grid = f" (tried: {', '.join(map(_factor, scales))})" if scales else ""
    return f"Learning rates, as a factor of the workload's: {'; '.join(chosen)}{grid}."


def _factor(scale: float) -> str:
    return f"{scale:g}x"
