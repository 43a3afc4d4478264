"""A plot of what a step puts on the network: what was said, what was carried, what the interface counted."""

from html import escape

from thinwire.lab.report import number_format as units
from thinwire.lab.report import rows
from thinwire.lab.report.charts import svg
from thinwire.lab.report.charts.plot import Plot
from thinwire.lab.report.charts.style import Look
from thinwire.lab.report.charts.svg import WIDTH, Axis, tag
from thinwire.lab.report.summary import Section

# The dot is drawn last, and fits into the ring: between two ranks, the link carries the payload and no more.
RING, DOT = "m-6 0a6 6 0 1 0 12 0a6 6 0 1 0 -12 0", "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0"
MARKS = {"link": RING, "wire": "m0 -9v18", "payload": DOT}


def traffic(section: Section, looks: dict[str, Look]) -> Plot:
    told = {
        entry.label: {which: figure.mean for which in MARKS if (figure := entry.bytes_per_step(which)) is not None}
        for entry in section.senders
    }
    scale = Axis(
        *svg.padded_log([n for sizes in told.values() for n in sizes.values() if n > 0] or [1.0]),
        rows.left(told),
        WIDTH - 20,
        log=True,
    )
    drawn = [rows.grid(scale, len(told), units.rounded_bytes, "bytes per step, on a logarithmic scale")]
    for row, (label, sizes) in enumerate(told.items()):
        known = {which: scale.at(nbytes) for which, nbytes in sizes.items() if nbytes > 0}
        middle = rows.top(row) + rows.ROW / 2
        pieces = []
        if known:
            pieces.append(
                tag("path", class_="between", d=f"M{min(known.values()):.1f} {middle}H{max(known.values()):.1f}")
            )
        for which, at in known.items():
            said = tag("title", escape(f"{label}: {which} {units.human(sizes[which])} a step"))
            pieces.append(tag("path", said, class_=f"mark {which}", d=f"M{at:.1f} {middle}{MARKS[which]}"))
        drawn.append(rows.row(label, row, looks, scale, pieces))
    title = "Bytes of a step: said, carried, counted"
    note = "Filled dot: payload. Ring: link."
    if any("wire" in sizes for sizes in told.values()):
        note += " Bar: wire, as the interface counted it."
    return Plot("traffic", title, rows.picture(drawn, len(told), title), note)
