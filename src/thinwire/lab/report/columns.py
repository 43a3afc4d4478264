"""The figures that are told of each method: the same in the terminal and on the page."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

from thinwire.lab.report.number_format import distance_text, duration, human, metric_name, metric_text, times
from thinwire.lab.report.summary import Entry, Section
from thinwire.lab.report.validation import best_steps, is_validated

UNKNOWN = "-"
LONG_NAME = 12  # letters: longer ones take two lines where it is narrow


def _always(_: Section) -> bool:
    return True


def _never(_: Section) -> bool:
    return False


@dataclass(frozen=True)
class Column:
    """A figure of every entry."""

    name: Callable[[Section], tuple[str, ...]]  # in lines, where it is narrow
    say: Callable[[Section, Entry], str]
    fits: Callable[[Section], bool] = _always
    in_terminal: Callable[[Section], bool] = _always  # 80 columns hold only so much
    spread: bool = True  # shown in the terminal


def _named(*lines: str) -> Callable[[Section], tuple[str, ...]]:
    return lambda _: lines


def _timed(*lines: str) -> Callable[[Section], tuple[str, ...]]:
    return lambda section: (*lines, "modeled") if section.modeled else lines


def _metric_name(section: Section) -> tuple[str, ...]:
    name = metric_name(section.first.metric).removeprefix("test ")
    first, _, last = name.rpartition(" ")
    return (first, last) if len(name) > LONG_NAME and first else (name,)


def say_metric(section: Section, entry: Entry) -> str:
    return metric_text(section.first.metric, entry.metric.mean, entry.metric.spread)


def _worst(section: Section, entry: Entry) -> str:
    worst = entry.worst
    return UNKNOWN if worst is None else metric_text(section.first.metric, worst.mean, worst.spread)


def _apart(_: Section, entry: Entry) -> str:
    return UNKNOWN if entry.apart is None else distance_text(entry.apart.mean)


def _differs(section: Section) -> bool:
    return section.differs


def _alike(section: Section) -> bool:
    return not section.differs


def has_server(section: Section) -> bool:
    return any(run.server for run in section.runs)


def _bytes(which: str) -> Callable[[Section, Entry], str]:
    def say(_: Section, entry: Entry) -> str:
        figure = entry.bytes_per_step(which)
        return UNKNOWN if figure is None else human(figure.mean)

    return say


def _at_a_worker(_: Section, entry: Entry) -> str:
    """What the busiest of the others carried, where one rank serves."""
    figures = [run.server["worker"] / run.steps for run in entry.runs if run.server]
    return human(fmean(figures)) if figures else UNKNOWN


def has_codes(section: Section) -> bool:
    return any(run.learned for run in section.runs)


def _coded(_: Section, entry: Entry) -> str:
    """How many times smaller what goes through learned codes was while these were in use."""
    found = [run.learned["coded"] for run in entry.runs if run.learned]
    ratios = [coded["dense"] / coded["payload"] for coded in found if coded["payload"]]
    return times(fmean(ratios)) if ratios else UNKNOWN


def say_to_target(section: Section, entry: Entry) -> str:
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


def _knows_targets(section: Section) -> bool:
    return any(section.to_target(entry) is not None for entry in section.entries)


def compares_targets(section: Section) -> bool:
    return any(section.target_speedup(entry) is not None for entry in section.entries if not entry.is_dense)


def has_room_for_targets(section: Section) -> bool:
    return not (section.differs and _has_dense(section))


COLUMNS = (
    Column(_metric_name, say_metric),
    Column(_named("worst"), _worst, fits=_differs, spread=False),
    Column(_named("apart"), _apart, fits=_differs),
    Column(
        _named("best", "step"),
        lambda _, entry: best_steps(entry.runs) or UNKNOWN,
        fits=lambda section: any(map(is_validated, section.runs)),
        in_terminal=_never,
    ),
    Column(
        _named("lr"),
        lambda _, entry: f"{entry.lr_scale:g}x",
        fits=lambda section: section.is_tuned,
        in_terminal=_never,
    ),
    Column(_named("seeds"), lambda _, entry: str(len(entry.runs)), in_terminal=_never),
    Column(
        _named("payload", "/ step"),
        _bytes("payload"),
        in_terminal=lambda section: not (section.differs or has_server(section)),
    ),
    Column(_named("link", "/ step"), _bytes("link")),
    Column(
        _named("worker", "/ step"),
        _at_a_worker,
        fits=has_server,
        in_terminal=_alike,
    ),
    Column(
        _named("wire", "/ step"),
        _bytes("wire"),
        fits=lambda section: any("wire" in run.bytes for run in section.runs),
        in_terminal=_never,
    ),
    Column(_named("smaller"), lambda _, entry: f"{entry.ratio.mean:.1f}x" if entry.sends else UNKNOWN),
    Column(_named("coded", "smaller"), _coded, fits=has_codes, in_terminal=lambda section: not has_server(section)),
    Column(_timed("training"), lambda _, entry: duration(entry.seconds("total").mean), in_terminal=_never),
    Column(_timed("time", "/ step"), lambda _, entry: duration(entry.seconds_per_step().mean)),
    Column(
        _timed("step", "vs dense"),
        lambda section, entry: _factor(section.step_speedup(entry)),
        fits=_has_dense,
        in_terminal=lambda section: not compares_targets(section),
    ),
    Column(
        _timed("to", "target"),
        say_to_target,
        fits=_knows_targets,
        in_terminal=has_room_for_targets,
    ),
    Column(
        _timed("target", "vs dense"),
        lambda section, entry: _factor(section.target_speedup(entry)),
        fits=lambda section: _has_dense(section) and _knows_targets(section),
        in_terminal=compares_targets,
    ),
)


def columns(section: Section) -> list[Column]:
    return [column for column in COLUMNS if column.fits(section)]
