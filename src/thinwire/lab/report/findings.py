"""The main findings of a section: one figure and one sentence each."""

from dataclasses import dataclass

from thinwire.lab.report.best_step import is_validated
from thinwire.lab.report.number_format import duration, metric_name, metric_text, times
from thinwire.lab.report.summary import Entry, Section


@dataclass(frozen=True)
class Finding:
    figure: str
    method: str
    sentence: str


def findings(section: Section) -> list[Finding]:
    # A rank that trains alone is a baseline: it sends nothing.
    others = [entry for entry in section.entries if not entry.is_dense and entry.sends]
    if section.dense is None or section.target is None or not others:
        return []
    good = [entry for entry in others if _reaches(section, entry)]
    found = [_highest_ratio_at_target(section, section.dense, good)] if good else []
    speedups = [(speedup, entry) for entry in others if (speedup := section.target_speedup(entry)) is not None]
    if speedups:
        found.append(_fastest(section, section.dense, *max(speedups, key=lambda pair: pair[0])))
    smallest = max(others, key=lambda entry: entry.ratio.mean)
    return found if smallest in good else [*found, _highest_ratio(section, section.dense, smallest)]


def _reaches(section: Section, entry: Entry) -> bool:
    assert section.target is not None
    sign = 1 if section.first.better == "higher" else -1
    return sign * (entry.metric.mean - section.target) >= 0


def _metrics(section: Section, dense: Entry, entry: Entry) -> str:
    metric = section.first.metric
    ours, theirs = (metric_text(metric, which.metric.mean) for which in (entry, dense))
    when = "at the best step" if any(map(is_validated, section.runs)) else "at the end"
    return f"{metric_name(metric)} {ours} {when}, dense {theirs}"


def _highest_ratio_at_target(section: Section, dense: Entry, good: list[Entry]) -> Finding:
    best = max(good, key=lambda entry: entry.ratio.mean)
    sentence = f"The fewest bytes of the methods that end at the target: {_metrics(section, dense, best)}."
    return Finding(f"{best.ratio.mean:.1f}x fewer bytes", best.label, sentence)


def _fastest(section: Section, dense: Entry, speedup: float, entry: Entry) -> Finding:
    modeled = ", with modeled time on the link" if section.modeled else ""
    seconds = f"{_time_to_target(section, entry)}, dense {_time_to_target(section, dense)}{modeled}"
    if speedup > 1:
        return Finding(f"{times(speedup)} faster", entry.label, f"The first to reach the target: {seconds}.")
    return Finding(
        f"{times(1 / speedup)} slower", entry.label, f"No method reaches the target before dense: {seconds}."
    )


def _time_to_target(section: Section, entry: Entry) -> str:
    reached = section.to_target(entry)
    assert reached is not None
    assert reached.seconds is not None
    return duration(reached.seconds.mean)


def _highest_ratio(section: Section, dense: Entry, entry: Entry) -> Finding:
    sentence = f"The fewest bytes of all methods: {_metrics(section, dense, entry)}."
    return Finding(f"{entry.ratio.mean:.1f}x fewer bytes", entry.label, sentence)
