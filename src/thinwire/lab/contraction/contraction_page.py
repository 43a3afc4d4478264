"""The page of `thinwire contraction`, in the style of the report."""

from html import escape

from thinwire.lab.contraction.contraction_table import bits_text, bound_text, error_text, notes_of
from thinwire.lab.contraction.measure import Measured, Study
from thinwire.lab.report import number_format as units
from thinwire.lab.report.charts import svg
from thinwire.lab.report.charts.plot import Plot
from thinwire.lab.report.charts.scatter import Dot, pareto, scattered
from thinwire.lab.report.charts.style import Look
from thinwire.lab.report.charts.svg import BOTTOM, HEIGHT, LEFT, TOP, WIDTH, Axis, tag
from thinwire.lab.report.elements import document, figure, row, table

KEY = "contraction"
BIASED, UNBIASED = Look(0), Look(1)
LEAST = 1e-9  # errors below this are rounding errors


def page(study: Study) -> str:
    steps = [step for step in study.steps if len(study.steps) > 1]
    head = ["method", "bits", "error", "bound", *study.kinds, *(f"step {step:,}" for step in steps)]
    rows = [
        row(f"{number}. {escape(measured.method)}", _figures(measured, steps))
        for number, measured in enumerate(study.measured, start=1)
    ]
    notes = tag("ul", *(tag("li", escape(note)) for note in notes_of(study)), class_="notes")
    return document(
        study.source.title,
        tag("p", escape(study.source.description), class_="quiet"),
        tag("section", tag("div", figure(plot(study), KEY), style="max-width:44rem")),
        tag("section", tag("h2", "Error and bits of each method"), table(head, rows) + notes),
        tag("footer", "Made by <code>thinwire contraction</code>; with <code>--json</code> it prints the figures."),
    )


def _figures(measured: Measured, steps: list[int]) -> list[str]:
    overall = measured.overall
    by_kind = [error_text(figures) for figures in measured.kinds.values()]
    by_step = [error_text(measured.steps[step]) for step in steps]
    return [bits_text(overall), error_text(overall), bound_text(overall), *by_kind, *by_step]


def plot(study: Study) -> Plot:
    """A scatter plot: one point per method, labeled with its number in the table."""
    dots = [
        Dot(
            str(number),
            measured.overall.bits,
            measured.overall.error,
            f"{number}. {measured.method}: {bits_text(measured.overall)} bits, error {error_text(measured.overall)}",
            UNBIASED if measured.unbiased else BIASED,
        )
        for number, measured in enumerate(study.measured, start=1)
        if measured.overall.error > LEAST
    ]
    on_front = pareto([(-dot.x, dot.y) for dot in dots], "lower")
    x = Axis(*svg.padded_log([dot.x for dot in dots] or [1.0, 10.0], 0.12), LEFT, WIDTH - 14, log=True)
    y = Axis(*svg.padded_log([dot.y for dot in dots] or [0.1, 1.0], 0.12), HEIGHT - BOTTOM, TOP, log=True)
    title = "Error against bits"
    drawing = svg.picture(
        svg.frame(x, y, "payload bits per entry", "E|C(x) - x|² / |x|²", "{:g}".format, units.short),
        *scattered(dots, x, y, on_front, 1),
        title=title,
        class_="plane",
    )
    note = "The line is the Pareto front. The numbers are those of the table."
    legend = (("biased", BIASED.css), ("unbiased", UNBIASED.css))
    return Plot("plane", title, drawing, note, legend=legend)
