"""The table of a comparison for the terminal, and texts that the terminal and the page share."""

from collections.abc import Iterable

from rich.console import Group
from rich.table import Table
from rich.text import Text

from thinwire.lab.recording.runs import Run, validation_name
from thinwire.lab.report.best_step import is_validated
from thinwire.lab.report.columns import (
    Column,
    columns,
    compares_targets,
    has_server,
    metric_text_of,
    shows_target_times,
    to_target_text,
)
from thinwire.lab.report.number_format import counted, is_share, link_text, metric_name, metric_text
from thinwire.lab.report.rates import rates_text
from thinwire.lab.report.summary import Section, sections
from thinwire.lab.runner.straggler import Straggler
from thinwire.lab.tables import plain_table


def table(runs: Iterable[Run], target: float | None = None) -> Group:
    """One table per task and cluster, for the terminal."""
    return Group(*(_table(section) for section in sections(runs, target)))


def _table(section: Section) -> Table:
    notes = Text("\n".join(_short_notes(section)))
    shown = plain_table(title=Text(heading(section)), caption=notes, caption_justify="left")
    shown.add_column("method", overflow="fold", min_width=8)
    chosen = [column for column in columns(section) if column.in_terminal(section)]
    for column in chosen:
        name = column.name(section)
        # "not reached", and metrics with a long spread, may take two lines.
        folds = column.text is to_target_text or (column.text is metric_text_of and not is_share(section.first.metric))
        shown.add_column("\n".join(name), justify="right", no_wrap=not folds, min_width=max(8, *map(len, name)) * folds)
    for entry in section.entries:
        shown.add_row(Text(entry.label), *(_narrow(column, column.text(section, entry)) for column in chosen))
    return shown


def _narrow(column: Column, figure: str) -> str:
    if not column.spread:
        figure = figure.partition(" ±")[0]
    return figure.replace("± ", "±").replace(" (", "\n(")


def heading(section: Section) -> str:
    run = section.first
    link = "" if run.link is None else f", {link_text(run.link)}" + (" (modeled)" if run.modeled else "")
    shards = "" if run.shards == "iid" else f", shards {run.shards}"
    slow = "" if run.straggler is None else f", {Straggler.parse(run.straggler, run.ranks)}"
    return f"{run.workload}, {counted(run.ranks, 'rank')}, {run.transport}{link}{shards}{slow}"


def _short_notes(section: Section) -> list[str]:
    spread = f"Means over {seeds_text(section)}, ± the sample standard deviation. " if len(section.seeds) > 1 else ""
    notes = [
        f"{spread}Payload: the bytes of one rank's messages, each once. Link: bytes that its network card carried in "
        "the busier direction. Ratio: the gradients' bytes over the payload's. Time: training, without evaluation."
    ]
    if any(map(is_validated, section.runs)):
        notes.append(f"{metric_name(section.first.metric).capitalize()}: {validated_text(section)}.")
    if section.is_tuned:
        notes.append(rates_text(section))
    if has_server(section) and not section.replicas_differ:
        notes.append(server_text())
    if section.replicas_differ:
        notes.append(replicas_text(section))
    if section.target is not None and _mentions_targets(section):
        notes.append(f"Target: {target_text(section)}.")
    notes += accumulated_text(section)
    if section.modeled:
        notes.append("Modeled: the time on the link was computed from the bytes, not measured.")
    elif section.first.transport == "simulated" and section.first.link is None:
        notes.append("Simulated: in one process, so no time is counted for the exchange.")
    return notes


def _mentions_targets(section: Section) -> bool:
    return shows_target_times(section) or compares_targets(section)


def seeds_text(section: Section) -> str:
    """The number of seeds that the means are over."""
    most = max(len(entry.runs) for entry in section.entries)
    return counted(most, "seed") if all(len(entry.runs) == most for entry in section.entries) else f"up to {most} seeds"


def validated_text(section: Section) -> str:
    """Which metric is shown if the workload has a validation set."""
    return f"on the test set, at the step with the best {metric_name(validation_name(section.first.metric))}"


def server_text() -> str:
    """The note on methods with a parameter server."""
    return "With a parameter server, link is that of the server, and worker that of the busiest other rank."


def replicas_text(section: Section) -> str:
    """The note on methods whose replicas differ."""
    name = metric_name(section.first.metric)
    return (
        f"Where replicas differ, {name} is that of their mean. Worst: that of the worst replica. Consensus "
        "distance: that to the mean at the end, root mean square over the ranks, relative to the mean's norm."
    )


def accumulated_text(section: Section) -> list[str]:
    """The note on runs that accumulate gradients."""
    if not any(run.variant.startswith("accumulate") for run in section.runs):
        return []
    return ["accumulate:N: a step has N batches and one exchange. Compare complete trainings, not steps."]


def target_text(section: Section) -> str:
    assert section.target is not None
    run = section.first
    side = "or more" if run.better == "higher" else "or less"
    return f"{metric_name(run.metric)} of {metric_text(run.metric, section.target)} {side}"
