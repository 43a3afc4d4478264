"""The plot of bytes per step: payload, link bytes, and wire bytes as the network interface counted them."""

from html import escape

from thinwire.lab.report import number_format as units
from thinwire.lab.report import rows
from thinwire.lab.report.charts import svg
from thinwire.lab.report.charts.plot import Plot
from thinwire.lab.report.charts.style import Look
from thinwire.lab.report.charts.svg import WIDTH, Axis, tag
from thinwire.lab.report.summary import Section

# The dot is drawn last and fits into the ring: with two ranks, the link bytes are the payload.
RING, DOT = "m-6 0a6 6 0 1 0 12 0a6 6 0 1 0 -12 0", "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0"
MARKS = {"link": RING, "wire": "m0 -9v18", "payload": DOT}


def traffic(section: Section, looks: dict[str, Look]) -> Plot:
    bytes_by_entry = {
        entry.label: {which: figure.mean for which in MARKS if (figure := entry.bytes_per_step(which)) is not None}
        for entry in section.senders
    }
    scale = Axis(
        *svg.padded_log([n for sizes in bytes_by_entry.values() for n in sizes.values() if n > 0] or [1.0]),
        rows.left(bytes_by_entry),
        WIDTH - 20,
        log=True,
    )
    elements = [rows.grid(scale, len(bytes_by_entry), units.rounded_bytes, "bytes per step, logarithmic")]
    for row, (label, sizes) in enumerate(bytes_by_entry.items()):
        known = {which: scale.at(nbytes) for which, nbytes in sizes.items() if nbytes > 0}
        middle = rows.top(row) + rows.ROW / 2
        pieces = []
        if known:
            pieces.append(
                tag("path", class_="between", d=f"M{min(known.values()):.1f} {middle}H{max(known.values()):.1f}")
            )
        for which, at in known.items():
            tooltip = tag("title", escape(f"{label}: {which} {units.human(sizes[which])} per step"))
            pieces.append(tag("path", tooltip, class_=f"mark {which}", d=f"M{at:.1f} {middle}{MARKS[which]}"))
        elements.append(rows.row(label, row, looks, scale, pieces))
    title = "Bytes per step"
    note = "Filled dot: payload. Ring: link."
    if any("wire" in sizes for sizes in bytes_by_entry.values()):
        note += " Bar: wire, as the network interface counted it."
    return Plot("traffic", title, rows.picture(elements, len(bytes_by_entry), title), note)
