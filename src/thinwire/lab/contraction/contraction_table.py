"""The figures in the terminal."""

from rich.console import Group
from rich.text import Text

from thinwire.lab.contraction.measure import Figures, Study
from thinwire.lab.report.columns import UNKNOWN
from thinwire.lab.report.number_format import counted
from thinwire.lab.tables import plain_table

SHOWN = 0.01  # of an error: what it is uncertain by, from which on that is told


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
    drawn = f"means over {counted(study.draws, 'draw')}" if study.draws > 1 else "of one draw"
    return [
        study.source.said,
        f"Bits: of an entry, as sent, with all that is sent beside it. Error: E|C(x) - x|^2 / |x|^2, {drawn} of what "
        "is drawn (±: their standard error, from 1 % on), and by kind. Bound: of the error, for any tensors of these "
        "sizes. Of methods with feedback, it is the first message, when nothing is left unsaid from before.",
    ]


def bits_text(figures: Figures) -> str:
    return f"{figures.bits:.3g}"


def error_text(figures: Figures) -> str:
    told = f"{figures.error:.3g}"
    return f"{told} ±{figures.give_or_take:.1g}" if figures.give_or_take >= SHOWN * figures.error > 0 else told


def bound_text(figures: Figures) -> str:
    if figures.bound is None:
        return UNKNOWN
    told = f"{figures.bound:.4g}"
    return "<1" if told == "1" and figures.bound < 1 else told
