"""The plots of a section. All can be read without the page's script, and on paper."""

from thinwire.lab.report.charts import bars, curves, lines
from thinwire.lab.report.charts.dots import traffic
from thinwire.lab.report.charts.plot import Plot
from thinwire.lab.report.charts.style import Look
from thinwire.lab.report.front import front
from thinwire.lab.report.summary import Section


def plots(section: Section, looks: dict[str, Look]) -> list[Plot]:
    optional = [lines.consensus(section, looks), lines.learned(section, looks)]
    # Runs of old versions do not record the batch size, so there is no number of examples.
    examples = [lines.metric, lines.loss] if all(map(curves.per_step, section.runs)) else []
    return [
        lines.metric(section, looks, "seconds"),
        lines.metric(section, looks, "payload_bytes"),
        lines.loss(section, looks, "seconds"),
        lines.loss(section, looks, "payload_bytes"),
        *(draw(section, looks, "examples") for draw in examples),
        *(plot for plot in optional if plot),
        front(section, looks),
        bars.time_parts(section, looks),
        traffic(section, looks),
        bars.layer_kinds(section, looks),
    ]
