"""Methods that factor layers at times: the ranks of the factors during the run, and the parameters at the end."""

from typing import Any

from thinwire.lab.recording.runs import Run
from thinwire.lab.report import layer_section as layers
from thinwire.lab.report.adaptation import looks_of
from thinwire.lab.report.charts.curves import Curve
from thinwire.lab.report.charts.planes import Plane, draw
from thinwire.lab.report.charts.plot import Plot
from thinwire.lab.report.charts.style import kind_look
from thinwire.lab.report.charts.svg import BOTTOM, HEIGHT, LEFT, TOP, WIDTH, Axis
from thinwire.lab.report.layer_section import Group
from thinwire.lab.report.number_format import percent
from thinwire.lab.report.summary import Entry, Section

MOST_PHASES = 6  # phases listed in the sentence


def plots(section: Section) -> list[Plot]:
    """A plot for each method that factors layers."""
    found = [_plot(entry, number) for number, entry in enumerate(section.entries, start=1)]
    return [plot for plot in found if plot]


def sentence(entry: Entry) -> str:
    """The phases of a method that factors layers, and the parameters at the end; empty for other methods."""
    run = entry.runs[0]
    if not run.factored:
        return ""
    changes = run.factored["changes"]
    low_rank, full_rank = run.factored["parameters"], run.parameters
    phases = ", ".join(_phase(change) for change in changes[:MOST_PHASES])
    more = f", and {len(changes) - MOST_PHASES} more changes" if len(changes) > MOST_PHASES else ""
    return (
        f"{phases}{more}. With low-rank layers, the model at the end has {low_rank:,} of {full_rank:,} parameters "
        f"({full_rank / low_rank:.1f}x fewer)."
    )


def _phase(change: dict[str, Any]) -> str:
    phase = "factored" if any(change["ranks"].values()) else "full-rank"
    return f"{phase} after step {change['step']:,}" if change["step"] > 1 else f"{phase} at first"


def _plot(entry: Entry, number: int) -> Plot | None:
    run = entry.runs[0]
    if not run.factored:
        return None
    groups = layers.groups([layer | {"elements": layer["rows"] * layer["columns"]} for layer in run.factored["layers"]])
    found = [Curve(group.label, _shares(run, group), []) for group in groups]
    found = [curve for curve in found if curve.mean]
    if not found:
        return None
    x = Axis(0.0, run.steps * 1.02, LEFT, WIDTH - 14, unit="step")
    y = Axis(0.0, 1.0, HEIGHT - BOTTOM, TOP, unit="share")
    title = "rank of factored layers"
    plane = Plane(x, y, "step", "rank, relative to full rank", "{:,g}".format, percent)
    drawing = draw(found, plane, looks_of(groups), f"{entry.label}: {title}", up=None)
    kinds = {group.kind: kind_look(group.kind).css for group in groups}
    return Plot(f"ranks-{number}", f"{entry.label}: {title}", drawing, legend=tuple(kinds.items()), method=entry.label)


def _shares(run: Run, group: Group) -> list[tuple[float, float]]:
    """The mean rank of a group's layers relative to full rank, at the start and the end of each factored phase."""
    changes = run.factored["changes"]
    full_ranks = {layer["name"]: min(layer["rows"], layer["columns"]) for layer in run.factored["layers"]}
    ends = [change["step"] for change in changes[1:]] + [run.steps]
    points = []
    for change, end in zip(changes, ends, strict=True):
        ranks = [(change["ranks"][name], full_ranks[name]) for name in group.names]
        shares = [rank / full for rank, full in ranks if rank is not None]
        if shares:
            points += [(float(step), sum(shares) / len(shares)) for step in (change["step"], end)]
    return points
