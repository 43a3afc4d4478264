"""The plots of a section. Each can be read without the page's script, and on paper."""

from thinwire.lab.report import bars, lines
from thinwire.lab.report.dots import traffic
from thinwire.lab.report.front import front
from thinwire.lab.report.looks import Look
from thinwire.lab.report.plot import Plot
from thinwire.lab.report.summary import Section


def plots(section: Section, looks: dict[str, Look]) -> list[Plot]:
    beside = [lines.apart(section, looks), lines.learned(section, looks)]
    return [
        lines.metric(section, looks, "seconds"),
        lines.metric(section, looks, "payload_bytes"),
        lines.loss(section, looks, "seconds"),
        lines.loss(section, looks, "payload_bytes"),
        *(plot for plot in beside if plot),
        front(section, looks),
        bars.time_parts(section, looks),
        traffic(section, looks),
        bars.layer_kinds(section, looks),
    ]
