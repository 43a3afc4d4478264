"""Bar plots: the parts of a step's time, and the shares of its payload by kind of layer."""

from thinwire.lab.report import number_format as units
from thinwire.lab.report import rows
from thinwire.lab.report.charts.plot import Plot
from thinwire.lab.report.charts.style import TIMES, Look, kind_area
from thinwire.lab.report.charts.svg import WIDTH, Axis, tag
from thinwire.lab.report.summary import Section


def time_parts(section: Section, looks: dict[str, Look]) -> Plot:
    parts = {e.label: {part: e.seconds_per_step(part).mean for part in TIMES} for e in section.entries}
    totals = {entry.label: entry.seconds_per_step().mean for entry in section.entries}
    most = max(*totals.values(), *(sum(seconds.values()) for seconds in parts.values())) or 1.0
    scale = Axis(0.0, most * 1.02, rows.left(totals), WIDTH - rows.FIGURE)
    name = "time per step, modeled" if section.modeled else "time per step"
    elements = [rows.grid(scale, len(parts), units.clock(most), name)]
    for row, (label, seconds_by_part) in enumerate(parts.items()):
        pieces, at = [], 0.0
        for part, seconds in seconds_by_part.items():
            tooltip = f"{label}: {part} {units.duration(seconds)}"
            pieces.append(rows.piece(scale, at, at + seconds, row, TIMES[part], tooltip))
            at += seconds
        end = scale.at(totals[label])
        pieces.append(tag("path", class_="total", d=f"M{end:.1f} {rows.top(row) + 2}v{rows.ROW - 4}"))
        pieces.append(rows.figure(units.duration(totals[label]), max(end, scale.at(at)), row))
        elements.append(rows.row(label, row, looks, scale, pieces))
    title = "Time per step"
    note = (
        "The mark and the figure are the full step. Between processes, encode, exchange and decode run on a separate "
        "thread in parallel with compute, so the parts may add up to more."
    )
    return Plot("time", title, rows.picture(elements, len(parts), title), note, tuple(TIMES.items()))


def layer_kinds(section: Section, looks: dict[str, Look]) -> Plot:
    title = "Bytes per kind of layer"
    sizes = {entry.label: by_kind for entry in section.senders if (by_kind := entry.kinds("payload"))}
    if not sizes:
        return Plot("kinds", title, tag("p", "These runs did not record it.", class_="missing"))
    kinds = list(dict.fromkeys(kind for by_kind in sizes.values() for kind in by_kind))
    colors = {kind: kind_area(kind) for kind in kinds}
    scale = Axis(0.0, 1.0, rows.left(sizes), WIDTH - rows.FIGURE)
    elements = [rows.grid(scale, len(sizes), "{:.0%}".format, "share of the payload per step")]
    for row, (label, by_kind) in enumerate(sizes.items()):
        pieces, at, total = [], 0.0, sum(by_kind.values()) or 1.0
        for kind in kinds:
            share = by_kind.get(kind, 0.0) / total
            tooltip = f"{label}: {kind} {units.human(by_kind.get(kind, 0.0))}, {share:.1%}"
            pieces.append(rows.piece(scale, at, at + share, row, colors[kind], tooltip, f"{share:.0%}"))
            at += share
        pieces.append(rows.figure(units.human(sum(by_kind.values())), scale.end, row))
        elements.append(rows.row(label, row, looks, scale, pieces))
    note = "At the end of each bar: the payload of one rank per step"
    # Runs without records of layers are of old versions, which measured this once, after the training.
    note += ", over the whole run." if any(run.layers for run in section.runs) else ", measured once at the end."
    return Plot("kinds", title, rows.picture(elements, len(sizes), title), note, tuple(colors.items()))
