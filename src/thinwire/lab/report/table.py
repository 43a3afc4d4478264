"""What is told of each method, in figures: the same columns in the terminal and on the page."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from thinwire.lab.report.summary import Entry, Section, sections
from thinwire.lab.report.units import (
    counted,
    distance_text,
    duration,
    human,
    is_share,
    link_text,
    metric_name,
    metric_text,
    times,
)
from thinwire.lab.runs import Run
from thinwire.lab.straggler import Straggler

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
    return lambda section: (*lines, "modelled") if section.modelled else lines


def _metric_name(section: Section) -> tuple[str, ...]:
    name = metric_name(section.first.metric).removeprefix("test ")
    first, _, last = name.rpartition(" ")
    return (first, last) if len(name) > LONG_NAME and first else (name,)


def _metric(section: Section, entry: Entry) -> str:
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


def _has_server(section: Section) -> bool:
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


def _to_target(section: Section, entry: Entry) -> str:
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


def _compares_targets(section: Section) -> bool:
    return any(section.target_speedup(entry) is not None for entry in section.entries if not entry.is_dense)


def _has_room_for_targets(section: Section) -> bool:
    return not (section.differs and _has_dense(section))


COLUMNS = (
    Column(_metric_name, _metric),
    Column(_named("worst"), _worst, fits=_differs, spread=False),
    Column(_named("apart"), _apart, fits=_differs),
    Column(_named("seeds"), lambda _, entry: str(len(entry.runs)), in_terminal=_never),
    Column(
        _named("payload", "/ step"),
        _bytes("payload"),
        in_terminal=lambda section: not (section.differs or _has_server(section)),
    ),
    Column(_named("link", "/ step"), _bytes("link")),
    Column(
        _named("worker", "/ step"),
        _at_a_worker,
        fits=_has_server,
        in_terminal=_alike,
    ),
    Column(
        _named("wire", "/ step"),
        _bytes("wire"),
        fits=lambda section: any("wire" in run.bytes for run in section.runs),
        in_terminal=_never,
    ),
    Column(_named("smaller"), lambda _, entry: f"{entry.ratio.mean:.1f}x"),
    Column(_timed("training"), lambda _, entry: duration(entry.seconds("total").mean), in_terminal=_never),
    Column(_timed("time", "/ step"), lambda _, entry: duration(entry.seconds_per_step().mean)),
    Column(
        _timed("step", "vs dense"),
        lambda section, entry: _factor(section.step_speedup(entry)),
        fits=_has_dense,
        in_terminal=lambda section: not _compares_targets(section),
    ),
    Column(
        _timed("to", "target"),
        _to_target,
        fits=_knows_targets,
        in_terminal=_has_room_for_targets,
    ),
    Column(
        _timed("target", "vs dense"),
        lambda section, entry: _factor(section.target_speedup(entry)),
        fits=lambda section: _has_dense(section) and _knows_targets(section),
        in_terminal=_compares_targets,
    ),
)


def columns(section: Section) -> list[Column]:
    return [column for column in COLUMNS if column.fits(section)]


def plain_table(**settings: Any) -> Table:
    """An empty table that leaves its width to its content."""
    return Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold", **settings)


def table(runs: Iterable[Run], target: float | None = None) -> Group:
    """The runs for the terminal, a table for each task and cluster."""
    return Group(*(_table(section) for section in sections(runs, target)))


def _table(section: Section) -> Table:
    notes = Text("\n".join(_short_notes(section)))
    shown = plain_table(title=Text(heading(section)), caption=notes, caption_justify="left")
    shown.add_column("method", overflow="fold", min_width=8)
    told = [column for column in columns(section) if column.in_terminal(section)]
    for column in told:
        name = column.name(section)
        # What may take two lines: not reached, and long figures with their spread.
        folds = column.say is _to_target or (column.say is _metric and not is_share(section.first.metric))
        shown.add_column("\n".join(name), justify="right", no_wrap=not folds, min_width=max(8, *map(len, name)) * folds)
    for entry in section.entries:
        shown.add_row(Text(entry.label), *(_narrow(column, column.say(section, entry)) for column in told))
    return shown


def _narrow(column: Column, figure: str) -> str:
    if not column.spread:
        figure = figure.partition(" ±")[0]
    return figure.replace("± ", "±").replace(" (", "\n(")


def heading(section: Section) -> str:
    run = section.first
    link = "" if run.link is None else f", {link_text(run.link)}" + (" (modelled)" if run.modelled else "")
    shards = "" if run.shards == "iid" else f", shards {run.shards}"
    slow = "" if run.straggler is None else f", {Straggler.parse(run.straggler, run.ranks)}"
    return f"{run.workload}, {counted(run.ranks, 'rank')}, {run.transport}{link}{shards}{slow}"


def _short_notes(section: Section) -> list[str]:
    seeds = len(section.seeds)
    spread = f"Means over {seeds} seeds, ± the sample standard deviation. " if seeds > 1 else ""
    notes = [
        f"{spread}Payload: what one rank had to say. Link: what its network card carried in the busier direction. "
        "Smaller: the gradients' bytes over the payload's. Time: training, without evaluation."
    ]
    if _has_server(section) and not section.differs:
        notes.append(server_text())
    if section.differs:
        notes.append(replicas_text(section))
    if section.target is not None and _tells_targets(section):
        notes.append(f"Target: {target_text(section)}.")
    if section.modelled:
        notes.append("Modelled: the time on the link was computed from the bytes, not measured.")
    elif section.first.transport == "simulated":
        notes.append("Simulated: in one process, so no time is counted for the exchange.")
    return notes


def _tells_targets(section: Section) -> bool:
    return _has_room_for_targets(section) or _compares_targets(section)


def server_text() -> str:
    """What is told of methods that have a server."""
    return "Where one rank serves, link is what that one's card carried, and worker what the busiest other one's did."


def replicas_text(section: Section) -> str:
    """What is told of replicas that differ."""
    name = metric_name(section.first.metric)
    return (
        f"Where replicas differ, {name} is that of their mean. Worst: that of the worst replica. Apart: how far "
        "replicas are from their mean at the end (root mean square over the ranks), as a share of its norm."
    )


def target_text(section: Section) -> str:
    assert section.target is not None
    run = section.first
    side = "or more" if run.better == "higher" else "or less"
    return f"{metric_name(run.metric)} of {metric_text(run.metric, section.target)} {side}"
