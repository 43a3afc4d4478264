"""Layers that are factored at times: their ranks as a run goes on, and what is left of the model."""

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

MOST_PHASES = 6  # that are named


def plots(section: Section) -> list[Plot]:
    """A plot for each method that factors layers."""
    found = [_drawn(entry, number) for number, entry in enumerate(section.entries, start=1)]
    return [plot for plot in found if plot]


def told(entry: Entry) -> str:
    """A sentence on the phases of a method that factors layers, and on the model at the end; else nothing."""
    run = entry.runs[0]
    if not run.factored:
        return ""
    changes = run.factored["changes"]
    thin, whole = run.factored["parameters"], run.parameters
    named = ", ".join(_phase(at) for at in changes[:MOST_PHASES])
    more = f", and {len(changes) - MOST_PHASES} more changes" if len(changes) > MOST_PHASES else ""
    return (
        f"{named}{more}. In thin layers, the model at the end has {thin:,} of {whole:,} parameters: {whole / thin:.1f} "
        "times fewer."
    )


def _phase(change: dict[str, Any]) -> str:
    phase = "factored" if any(change["ranks"].values()) else "whole"
    return f"{phase} after step {change['step']:,}" if change["step"] > 1 else f"{phase} at first"


def _drawn(entry: Entry, number: int) -> Plot | None:
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
    plane = Plane(x, y, "step", "rank, of the most there could be", "{:,g}".format, percent)
    drawing = draw(found, plane, looks_of(groups), f"{entry.label}: {title}", up=None)
    kinds = {group.kind: kind_look(group.kind).css for group in groups}
    return Plot(f"ranks-{number}", f"{entry.label}: {title}", drawing, legend=tuple(kinds.items()), method=entry.label)


def _shares(run: Run, group: Group) -> list[tuple[float, float]]:
    """The mean share of the full rank that some layers have, from each time they are factored to the end of it."""
    changes = run.factored["changes"]
    most = {layer["name"]: min(layer["rows"], layer["columns"]) for layer in run.factored["layers"]}
    ends = [at["step"] for at in changes[1:]] + [run.steps]
    points = []
    for at, end in zip(changes, ends, strict=True):
        known = [(at["ranks"][name], most[name]) for name in group.names]
        shares = [rank / full for rank, full in known if rank is not None]
        if shares:
            points += [(float(step), sum(shares) / len(shares)) for step in (at["step"], end)]
    return points
