"""The columns of the table of methods, for the terminal and for the page."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

from thinwire.lab.report.best_step import best_steps, is_validated
from thinwire.lab.report.number_format import distance_text, duration, human, metric_name, metric_text, times
from thinwire.lab.report.summary import Entry, Section

UNKNOWN = "-"
LONG_NAME = 12  # characters: longer names take two lines in the terminal


def _always(_: Section) -> bool:
    return True


def _never(_: Section) -> bool:
    return False


@dataclass(frozen=True)
class Column:
    """One column: a figure for each entry."""

    name: Callable[[Section], tuple[str, ...]]  # one string per line in the terminal
    text: Callable[[Section, Entry], str]
    applies: Callable[[Section], bool] = _always
    in_terminal: Callable[[Section], bool] = _always  # the terminal has 80 columns only
    spread: bool = True  # show the standard deviation in the terminal


def _named(*lines: str) -> Callable[[Section], tuple[str, ...]]:
    return lambda _: lines


def _timed(*lines: str) -> Callable[[Section], tuple[str, ...]]:
    return lambda section: (*lines, "modeled") if section.modeled else lines


def _metric_name(section: Section) -> tuple[str, ...]:
    name = metric_name(section.first.metric).removeprefix("test ")
    first, _, last = name.rpartition(" ")
    return (first, last) if len(name) > LONG_NAME and first else (name,)


def metric_text_of(section: Section, entry: Entry) -> str:
    return metric_text(section.first.metric, entry.metric.mean, entry.metric.spread)


def _worst(section: Section, entry: Entry) -> str:
    worst = entry.worst_replica
    return UNKNOWN if worst is None else metric_text(section.first.metric, worst.mean, worst.spread)


def _consensus_distance(_: Section, entry: Entry) -> str:
    distance = entry.consensus_distance
    return UNKNOWN if distance is None else distance_text(distance.mean)


def _replicas_differ(section: Section) -> bool:
    return section.replicas_differ


def _replicas_equal(section: Section) -> bool:
    return not section.replicas_differ


def has_server(section: Section) -> bool:
    return any(run.server for run in section.runs)


def _bytes(which: str) -> Callable[[Section, Entry], str]:
    def text(_: Section, entry: Entry) -> str:
        figure = entry.bytes_per_step(which)
        return UNKNOWN if figure is None else human(figure.mean)

    return text


def _worker_bytes(_: Section, entry: Entry) -> str:
    """The link bytes of the busiest worker, for methods with a parameter server."""
    figures = [run.server["worker"] / run.steps for run in entry.runs if run.server]
    return human(fmean(figures)) if figures else UNKNOWN


def has_learned_codes(section: Section) -> bool:
    return any(run.learned for run in section.runs)


def _coded_ratio(_: Section, entry: Entry) -> str:
    """The compression ratio of the layers with learned codes, in the steps that used the codes."""
    found = [run.learned["coded"] for run in entry.runs if run.learned]
    ratios = [coded["dense"] / coded["payload"] for coded in found if coded["payload"]]
    return times(fmean(ratios)) if ratios else UNKNOWN


def to_target_text(section: Section, entry: Entry) -> str:
    reached = section.to_target(entry)
    if reached is None:
        return UNKNOWN
    if reached.seconds is None:
        return "not reached"
    part = "" if reached.by_all else f" ({reached.by} of {reached.runs})"
    return duration(reached.seconds.mean) + part


def _factor(speedup: float | None) -> str:
    return UNKNOWN if speedup is None else times(speedup)


def _has_dense(section: Section) -> bool:
    return section.dense is not None


def _has_target_times(section: Section) -> bool:
    return any(section.to_target(entry) is not None for entry in section.entries)


def compares_targets(section: Section) -> bool:
    return any(section.target_speedup(entry) is not None for entry in section.entries if not entry.is_dense)


def shows_target_times(section: Section) -> bool:
    return not (section.replicas_differ and _has_dense(section))


COLUMNS = (
    Column(_metric_name, metric_text_of),
    Column(_named("worst"), _worst, applies=_replicas_differ, spread=False),
    Column(_named("consensus", "distance"), _consensus_distance, applies=_replicas_differ),
    Column(
        _named("best", "step"),
        lambda _, entry: best_steps(entry.runs) or UNKNOWN,
        applies=lambda section: any(map(is_validated, section.runs)),
        in_terminal=_never,
    ),
    Column(
        _named("lr"),
        lambda _, entry: f"{entry.lr_scale:g}x",
        applies=lambda section: section.is_tuned,
        in_terminal=_never,
    ),
    Column(_named("seeds"), lambda _, entry: str(len(entry.runs)), in_terminal=_never),
    Column(
        _named("payload", "/ step"),
        _bytes("payload"),
        in_terminal=lambda section: not (section.replicas_differ or has_server(section)),
    ),
    Column(_named("link", "/ step"), _bytes("link")),
    Column(
        _named("worker", "/ step"),
        _worker_bytes,
        applies=has_server,
        in_terminal=_replicas_equal,
    ),
    Column(
        _named("wire", "/ step"),
        _bytes("wire"),
        applies=lambda section: any("wire" in run.bytes for run in section.runs),
        in_terminal=_never,
    ),
    Column(_named("ratio"), lambda _, entry: f"{entry.ratio.mean:.1f}x" if entry.sends else UNKNOWN),
    Column(
        _named("coded", "ratio"),
        _coded_ratio,
        applies=has_learned_codes,
        in_terminal=lambda section: not has_server(section),
    ),
    Column(_timed("training"), lambda _, entry: duration(entry.seconds("total").mean), in_terminal=_never),
    Column(_timed("time", "/ step"), lambda _, entry: duration(entry.seconds_per_step().mean)),
    Column(
        _timed("step", "vs dense"),
        lambda section, entry: _factor(section.step_speedup(entry)),
        applies=_has_dense,
        in_terminal=lambda section: not compares_targets(section),
    ),
    Column(
        _timed("to", "target"),
        to_target_text,
        applies=_has_target_times,
        in_terminal=shows_target_times,
    ),
    Column(
        _timed("target", "vs dense"),
        lambda section, entry: _factor(section.target_speedup(entry)),
        applies=lambda section: _has_dense(section) and _has_target_times(section),
        in_terminal=compares_targets,
    ),
)


def columns(section: Section) -> list[Column]:
    return [column for column in COLUMNS if column.applies(section)]
