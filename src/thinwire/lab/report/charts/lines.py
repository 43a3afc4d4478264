"""Line plots of loss or metric against time, bytes or examples: a thick line per method, a thin one per seed."""

from collections.abc import Callable

from thinwire.lab.report import number_format as units
from thinwire.lab.report.charts import curves, svg
from thinwire.lab.report.charts.curves import Curve
from thinwire.lab.report.charts.planes import Plane, draw
from thinwire.lab.report.charts.plot import Plot
from thinwire.lab.report.charts.style import Look
from thinwire.lab.report.charts.svg import BOTTOM, HEIGHT, LEFT, TOP, WIDTH, Axis, tag, words
from thinwire.lab.report.summary import Section

AGAINST = {"seconds": "time", "payload_bytes": "bytes", "examples": "examples"}
WIDE = 10  # above this ratio of the highest to the lowest value, the axis is logarithmic


def metric(section: Section, looks: dict[str, Look], against: str) -> Plot:
    name = units.metric_name(section.first.metric)
    found = curves.metrics(section, against)
    low, high = curves.window(section, found)
    lower = section.first.better == "lower"
    share = units.is_share(section.first.metric)
    text = units.percent if share else units.short
    is_log = lower and low > 0 and high / low > WIDE
    y = Axis(low, high, HEIGHT - BOTTOM, TOP, is_log, "share" if share else "number")
    plane = _plane(section, found, against, y, name, text)
    title = f"{name[0].upper()}{name[1:]} against {AGAINST[against]}"
    up = None if against == "examples" else not lower  # most lines end at the same number of examples
    drawing = draw(found, plane, looks, title, up, behind=lambda plane: _target(section, plane))
    return Plot(f"metric-{AGAINST[against]}", title, drawing)


def loss(section: Section, looks: dict[str, Look], against: str) -> Plot:
    found = curves.losses(section, against)
    low, high = svg.padded_log([y for curve in found for _, y in curve.points if 0 < y < float("inf")] or [1.0])
    y = Axis(low, high, HEIGHT - BOTTOM, TOP, log=True)
    plane = _plane(section, found, against, y, "training loss", units.short)
    title = f"Training loss against {AGAINST[against]}"
    drawing = draw(found, plane, looks, title, up=None if against == "examples" else False)
    return Plot(f"loss-{AGAINST[against]}", title, drawing, "A running mean over batches.")


def consensus(section: Section, looks: dict[str, Look]) -> Plot | None:
    """The consensus distance by step; None if no method's replicas differ."""
    found = curves.consensus_distances(section)
    values = [y for curve in found for _, y in curve.points if 0 < y < float("inf")]
    if not values:
        return None
    steps = max(x for curve in found for x, _ in curve.points)
    x = Axis(0.0, steps * 1.02, LEFT, WIDTH - 14, unit="step")
    y = Axis(*svg.padded_log(values), HEIGHT - BOTTOM, TOP, log=True, unit="distance")
    title = "Consensus distance"
    plane = Plane(x, y, "step", "distance to the mean / norm of the mean", "{:,g}".format, units.fine_percent)
    note = "Root mean square over the ranks, at each evaluation. Only methods whose replicas differ."
    return Plot("consensus", title, draw(found, plane, looks, title, up=None), note)


def learned(section: Section, looks: dict[str, Look]) -> Plot | None:
    """The error of learned codes by step; None if no method has learned codes."""
    found = curves.code_errors(section)
    if not found:
        return None
    steps = max(x for curve in found for x, _ in curve.points)
    high = max(y for curve in found for _, y in curve.points if y < float("inf"))
    x = Axis(0.0, steps * 1.02, LEFT, WIDTH - 14, unit="step")
    y = Axis(0.0, max(1.0, high) * 1.02, HEIGHT - BOTTOM, TOP, unit="share")
    title = "Error of learned codes"
    plane = Plane(x, y, "step", "error of the mean / norm of the mean", "{:,g}".format, units.percent)
    note = (
        "A running mean while the codes are learned, then the error at the last check. Only methods with learned codes."
    )
    return Plot("learned", title, draw(found, plane, looks, title, up=None), note)


def _plane(
    section: Section, found: list[Curve], against: str, y: Axis, y_name: str, y_text: Callable[[float], str]
) -> Plane:
    values = [x for curve in found for x, _ in curve.points if x > 0] or [1.0]
    if against == "seconds":
        x = Axis(0.0, max(values) * 1.02, LEFT, WIDTH - 14, unit="seconds")
        x_name = "training time, modeled" if section.modeled else "training time"
        return Plane(x, y, x_name, y_name, units.clock(x.high), y_text)
    if against == "examples":
        x = Axis(0.0, max(values) * 1.02, LEFT, WIDTH - 14, unit="examples")
        return Plane(x, y, "training examples used by all ranks", y_name, units.rounded_count, y_text)
    # The first 2 % of the points are left out: they would take most of a logarithmic axis.
    early = [curve.mean[len(curve.mean) // 50][0] for curve in found if curve.mean]
    low = min((x for x in early if x > 0), default=1.0)
    x = Axis(*svg.padded_log([low, max(values)], 0.02), LEFT, WIDTH - 14, log=True, unit="bytes")
    return Plane(x, y, "payload bytes of one rank", y_name, units.rounded_bytes, y_text)


def _target(section: Section, plane: Plane) -> str:
    if section.target is None or not plane.y.low < section.target < plane.y.high:
        return ""
    at = plane.y.at(section.target)
    label = f"target {units.metric_text(section.first.metric, section.target)}"
    # At the left end, on the side of the line that no curve has reached yet.
    height = at - 5 if section.first.better == "higher" else at + 14
    return tag(
        "g",
        tag("line", x1=plane.x.start, x2=plane.x.end, y1=f"{at:.1f}", y2=f"{at:.1f}"),
        words(label, plane.x.start + 5, height),
        class_="target",
    )
