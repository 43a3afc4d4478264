"""Plots of bars: where the time of a step goes, and which layers its bytes are about."""

from thinwire.lab.report import number_format as units
from thinwire.lab.report import rows
from thinwire.lab.report.charts.plot import Plot
from thinwire.lab.report.charts.style import TIMES, Look, kind_area
from thinwire.lab.report.charts.svg import WIDTH, Axis, tag
from thinwire.lab.report.summary import Section


def time_parts(section: Section, looks: dict[str, Look]) -> Plot:
    parts = {e.label: {part: e.seconds_per_step(part).mean for part in TIMES} for e in section.entries}
    wholes = {entry.label: entry.seconds_per_step().mean for entry in section.entries}
    most = max(*wholes.values(), *(sum(told.values()) for told in parts.values())) or 1.0
    scale = Axis(0.0, most * 1.02, rows.left(wholes), WIDTH - rows.FIGURE)
    name = "time per step, modeled" if section.modeled else "time per step"
    drawn = [rows.grid(scale, len(parts), units.clock(most), name)]
    for row, (label, told) in enumerate(parts.items()):
        pieces, at = [], 0.0
        for part, seconds in told.items():
            said = f"{label}: {part} {units.duration(seconds)}"
            pieces.append(rows.piece(scale, at, at + seconds, row, TIMES[part], said))
            at += seconds
        end = scale.at(wholes[label])
        pieces.append(tag("path", class_="total", d=f"M{end:.1f} {rows.top(row) + 2}v{rows.ROW - 4}"))
        pieces.append(rows.figure(units.duration(wholes[label]), max(end, scale.at(at)), row))
        drawn.append(rows.row(label, row, looks, scale, pieces))
    title = "Where the time of a step goes"
    note = (
        "The mark and the figure are the whole step. Between processes, encode, exchange and decode run beside "
        "compute, on a thread of their own, so the parts need not add up to it."
    )
    return Plot("time", title, rows.picture(drawn, len(parts), title), note, tuple(TIMES.items()))


def layer_kinds(section: Section, looks: dict[str, Look]) -> Plot:
    title = "Bytes per kind of layer"
    sizes = {entry.label: told for entry in section.senders if (told := entry.kinds("payload"))}
    if not sizes:
        return Plot("kinds", title, tag("p", "These runs do not tell.", class_="missing"))
    kinds = list(dict.fromkeys(kind for told in sizes.values() for kind in told))
    colors = {kind: kind_area(kind) for kind in kinds}
    scale = Axis(0.0, 1.0, rows.left(sizes), WIDTH - rows.FIGURE)
    drawn = [rows.grid(scale, len(sizes), "{:.0%}".format, "share of the payload of a step")]
    for row, (label, told) in enumerate(sizes.items()):
        pieces, at, whole = [], 0.0, sum(told.values()) or 1.0
        for kind in kinds:
            share = told.get(kind, 0.0) / whole
            said = f"{label}: {kind} {units.human(told.get(kind, 0.0))}, {share:.1%}"
            pieces.append(rows.piece(scale, at, at + share, row, colors[kind], said, f"{share:.0%}"))
            at += share
        pieces.append(rows.figure(units.human(sum(told.values())), scale.end, row))
        drawn.append(rows.row(label, row, looks, scale, pieces))
    note = "At the end of each bar: the payload of one rank in a step"
    # Runs that do not tell of their layers come from a version that measured this once, after the training.
    note += ", over the whole run." if any(run.layers for run in section.runs) else ", measured once at the end."
    return Plot("kinds", title, rows.picture(drawn, len(sizes), title), note, tuple(colors.items()))
