"""The table of `thinwire contraction`."""

from rich.console import Group
from rich.text import Text

from thinwire.lab.contraction.measure import Figures, Study
from thinwire.lab.report.columns import UNKNOWN
from thinwire.lab.report.number_format import counted
from thinwire.lab.tables import plain_table

SHOWN = 0.01  # a standard error is shown from this fraction of the error on


def shown(study: Study) -> Group:
    notes = Text("\n".join(notes_of(study)))
    table = plain_table(title=Text(study.source.title), caption=notes, caption_justify="left")
    table.add_column("method", overflow="fold", min_width=8)
    for name in ("bits", "error", "bound", *study.kinds):
        table.add_column(name, justify="right")
    for measured in study.measured:
        overall = measured.overall
        kinds = [error_text(figures) for figures in measured.kinds.values()]
        table.add_row(Text(measured.method), bits_text(overall), error_text(overall), bound_text(overall), *kinds)
    return Group(table)


def notes_of(study: Study) -> list[str]:
    samples = f"mean over {counted(study.draws, 'draw')}" if study.draws > 1 else "of one draw"
    return [
        study.source.description,
        f"Bits: payload bits per entry, headers and scales included. Error: E|C(x) - x|^2 / |x|^2, {samples} if the "
        "method is stochastic (±: standard error, from 1 % on), overall and by kind. Bound: of the error, for any "
        "tensors of these sizes. With error feedback, the first message is measured, while the residual is zero.",
    ]


def bits_text(figures: Figures) -> str:
    return f"{figures.bits:.3g}"


def error_text(figures: Figures) -> str:
    text = f"{figures.error:.3g}"
    return f"{text} ±{figures.give_or_take:.1g}" if figures.give_or_take >= SHOWN * figures.error > 0 else text


def bound_text(figures: Figures) -> str:
    if figures.bound is None:
        return UNKNOWN
    text = f"{figures.bound:.4g}"
    return "<1" if text == "1" and figures.bound < 1 else text
