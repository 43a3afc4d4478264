"""The scatter plot of metric against compression ratio, with its Pareto front."""

from math import isfinite

from thinwire.lab.report import number_format as units
from thinwire.lab.report.charts import svg
from thinwire.lab.report.charts.plot import Plot
from thinwire.lab.report.charts.scatter import Dot, pareto, scattered
from thinwire.lab.report.charts.style import Look
from thinwire.lab.report.charts.svg import BOTTOM, HEIGHT, LEFT, TOP, WIDTH, Axis
from thinwire.lab.report.summary import Entry, Section


def front(section: Section, looks: dict[str, Look]) -> Plot:
    name = units.metric_name(section.first.metric)
    share = units.is_share(section.first.metric)
    known = [entry for entry in section.senders if isfinite(entry.metric.mean) and isfinite(entry.ratio.mean)]
    x, y = _axes(known)
    text = units.percent if share else units.short
    dots = [_dot(entry, looks[entry.label]) for entry in known]
    on_front = pareto([(dot.x, dot.y) for dot in dots], section.first.better)
    title = f"{name[0].upper()}{name[1:]} against compression ratio"
    drawing = svg.picture(
        svg.frame(x, y, "compression ratio (payload)", name, lambda ratio: f"{ratio:g}x", text),
        *scattered(dots, x, y, on_front, -1 if section.first.better == "higher" else 1),
        title=title,
        class_="plane",
    )
    spread = " Bars: one standard deviation over seeds." if len(section.seeds) > 1 else ""
    return Plot("pareto", title, drawing, f"The line is the Pareto front: no other method is better in both.{spread}")


def _axes(known: list[Entry]) -> tuple[Axis, Axis]:
    ends = [entry.metric.mean + side * (entry.metric.spread or 0.0) for entry in known for side in (-1, 1)]
    ratios = [entry.ratio.mean for entry in known]
    return (
        Axis(*svg.padded_log(ratios or [1.0, 10.0], 0.12), LEFT, WIDTH - 14, log=True),
        Axis(*svg.padded(ends or [0.0, 1.0], 0.12), HEIGHT - BOTTOM, TOP),
    )


def _dot(entry: Entry, look: Look) -> Dot:
    ratio, metric, spread = entry.ratio.mean, entry.metric.mean, entry.metric.spread
    tooltip = f"{entry.label}: ratio {ratio:.1f}x, {units.metric_text(entry.runs[0].metric, metric, spread)}"
    return Dot(entry.label, ratio, metric, tooltip, look, spread or 0.0)
