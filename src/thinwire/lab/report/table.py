"""The runs of a comparison for the terminal, and what tables and pages say of them in words."""

from collections.abc import Iterable

from rich.console import Group
from rich.table import Table
from rich.text import Text

from thinwire.lab.recording.runs import Run, validation_name
from thinwire.lab.report.columns import (
    Column,
    columns,
    compares_targets,
    has_room_for_targets,
    has_server,
    say_metric,
    say_to_target,
)
from thinwire.lab.report.number_format import counted, is_share, link_text, metric_name, metric_text
from thinwire.lab.report.rates import rates_text
from thinwire.lab.report.summary import Section, sections
from thinwire.lab.report.validation import is_validated
from thinwire.lab.runner.straggler import Straggler
from thinwire.lab.tables import plain_table


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
        folds = column.say is say_to_target or (column.say is say_metric and not is_share(section.first.metric))
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
    link = "" if run.link is None else f", {link_text(run.link)}" + (" (modeled)" if run.modeled else "")
    shards = "" if run.shards == "iid" else f", shards {run.shards}"
    slow = "" if run.straggler is None else f", {Straggler.parse(run.straggler, run.ranks)}"
    return f"{run.workload}, {counted(run.ranks, 'rank')}, {run.transport}{link}{shards}{slow}"


def _short_notes(section: Section) -> list[str]:
    spread = f"Means over {seeds_text(section)}, ± the sample standard deviation. " if len(section.seeds) > 1 else ""
    notes = [
        f"{spread}Payload: what one rank had to say. Link: what its network card carried in the busier direction. "
        "Smaller: the gradients' bytes over the payload's. Time: training, without evaluation."
    ]
    if any(map(is_validated, section.runs)):
        notes.append(f"{metric_name(section.first.metric).capitalize()}: {validated_text(section)}.")
    if section.is_tuned:
        notes.append(rates_text(section))
    if has_server(section) and not section.differs:
        notes.append(server_text())
    if section.differs:
        notes.append(replicas_text(section))
    if section.target is not None and _tells_targets(section):
        notes.append(f"Target: {target_text(section)}.")
    notes += accumulated_text(section)
    if section.modeled:
        notes.append("Modeled: the time on the link was computed from the bytes, not measured.")
    elif section.first.transport == "simulated" and section.first.link is None:
        notes.append("Simulated: in one process, so no time is counted for the exchange.")
    return notes


def _tells_targets(section: Section) -> bool:
    return has_room_for_targets(section) or compares_targets(section)


def seeds_text(section: Section) -> str:
    """How many seeds figures are means of."""
    most = max(len(entry.runs) for entry in section.entries)
    return counted(most, "seed") if all(len(entry.runs) == most for entry in section.entries) else f"up to {most} seeds"


def validated_text(section: Section) -> str:
    """Of which step a metric is, where there is a validation part."""
    return f"on the test set, at the step with the best {metric_name(validation_name(section.first.metric))}"


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


def accumulated_text(section: Section) -> list[str]:
    """What is to be known of gradients that are accumulated."""
    if not any(run.variant.startswith("accumulate") for run in section.runs):
        return []
    return ["accumulate:N: a step has N batches and one exchange. Compare it by whole trainings, not by steps."]


def target_text(section: Section) -> str:
    assert section.target is not None
    run = section.first
    side = "or more" if run.better == "higher" else "or less"
    return f"{metric_name(run.metric)} of {metric_text(run.metric, section.target)} {side}"
