"""Plots of bars: where the time of a step goes, and which layers its bytes are about."""

from collections.abc import Callable, Iterable
from html import escape

from thinwire.lab.report import svg, units
from thinwire.lab.report.looks import KINDS, PARTS, Look
from thinwire.lab.report.plot import Plot
from thinwire.lab.report.summary import Section
from thinwire.lab.report.svg import BOTTOM, WIDTH, Axis, tag, words

ROW, BAR = 30, 18  # heights
LETTERS = 15  # of a name
FIGURE = 74  # how wide the one after a bar is
DOT = "m-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0"
TRAFFIC = {"payload": DOT, "link": DOT, "wire": "m0 -8v16"}  # how each is marked


def time_parts(section: Section, looks: dict[str, Look]) -> Plot:
    parts = {e.label: {part: e.seconds_per_step(part).mean for part in PARTS} for e in section.entries}
    wholes = {entry.label: entry.seconds_per_step().mean for entry in section.entries}
    most = max(*wholes.values(), *(sum(told.values()) for told in parts.values())) or 1.0
    scale = Axis(0.0, most * 1.02, _left(wholes), WIDTH - FIGURE)
    name = "time per step, modelled" if section.modelled else "time per step"
    drawn = [_grid(scale, len(parts), units.clock(most), name)]
    for row, (label, told) in enumerate(parts.items()):
        pieces, at = [], 0.0
        for part, seconds in told.items():
            said = f"{label}: {part} {units.duration(seconds)}"
            pieces.append(_piece(scale, at, at + seconds, row, PARTS[part], said))
            at += seconds
        end = scale.at(wholes[label])
        pieces.append(tag("path", class_="total", d=f"M{end:.1f} {_top(row) + 2}v{ROW - 4}"))
        pieces.append(_figure(units.duration(wholes[label]), max(end, scale.at(at)), row))
        drawn.append(_row(label, row, looks, scale, pieces))
    title = "Where the time of a step goes"
    note = (
        "The mark and the figure are the whole step. Encode, exchange and decode run beside compute, on a thread of "
        "their own, so the parts need not add up to it."
    )
    return Plot("time", title, _picture(drawn, len(parts), title), note, tuple(PARTS.items()))


def layer_kinds(section: Section, looks: dict[str, Look]) -> Plot:
    title = "Bytes per kind of layer"
    sizes = {entry.label: told for entry in section.entries if (told := entry.kinds("payload"))}
    if not sizes:
        return Plot("kinds", title, tag("p", "These runs do not tell.", class_="missing"))
    kinds = list(dict.fromkeys(kind for told in sizes.values() for kind in told))
    colours = {kind: KINDS[i % len(KINDS)] for i, kind in enumerate(kinds)}
    scale = Axis(0.0, 1.0, _left(sizes), WIDTH - FIGURE)
    drawn = [_grid(scale, len(sizes), "{:.0%}".format, "share of the payload of a step")]
    for row, (label, told) in enumerate(sizes.items()):
        pieces, at, whole = [], 0.0, sum(told.values()) or 1.0
        for kind in kinds:
            share = told.get(kind, 0.0) / whole
            said = f"{label}: {kind} {units.human(told.get(kind, 0.0))}, {share:.1%}"
            pieces.append(_piece(scale, at, at + share, row, colours[kind], said, f"{share:.0%}"))
            at += share
        pieces.append(_figure(units.human(sum(told.values())), scale.end, row))
        drawn.append(_row(label, row, looks, scale, pieces))
    note = "At the end of each bar: the payload of one rank in a step."
    return Plot("kinds", title, _picture(drawn, len(sizes), title), note, tuple(colours.items()))


def traffic(section: Section, looks: dict[str, Look]) -> Plot:
    told = {
        entry.label: {which: figure.mean for which in TRAFFIC if (figure := entry.bytes_per_step(which)) is not None}
        for entry in section.entries
    }
    scale = Axis(
        *svg.padded_log([n for sizes in told.values() for n in sizes.values() if n > 0] or [1.0]),
        _left(told),
        WIDTH - 20,
        log=True,
    )
    drawn = [_grid(scale, len(told), units.rounded_bytes, "bytes per step, on a logarithmic scale")]
    for row, (label, sizes) in enumerate(told.items()):
        known = {which: scale.at(nbytes) for which, nbytes in sizes.items() if nbytes > 0}
        middle = _top(row) + ROW / 2
        pieces = []
        if known:
            pieces.append(
                tag("path", class_="between", d=f"M{min(known.values()):.1f} {middle}H{max(known.values()):.1f}")
            )
        for which, at in known.items():
            said = tag("title", escape(f"{label}: {which} {units.human(sizes[which])} a step"))
            pieces.append(tag("path", said, class_=f"mark {which}", d=f"M{at:.1f} {middle}{TRAFFIC[which]}"))
        drawn.append(_row(label, row, looks, scale, pieces))
    title = "Bytes of a step: said, carried, counted"
    note = "Filled dot: payload. Ring: link."
    if any("wire" in sizes for sizes in told.values()):
        note += " Bar: wire, as the interface counted it."
    return Plot("traffic", title, _picture(drawn, len(told), title), note)


def _left(labels: Iterable[str]) -> float:
    return 14 + svg.LETTER * min(LETTERS, max(map(len, labels)))


def _top(row: int) -> float:
    return 8 + ROW * row


def _picture(drawn: list[str], rows: int, title: str) -> str:
    return svg.picture(*drawn, title=title, height=_top(rows) + BOTTOM, class_="bars")


def _grid(scale: Axis, rows: int, say: Callable[[float], str], name: str) -> str:
    drawn, bottom = [], _top(rows)
    for value in scale.ticks():
        at = scale.at(value)
        drawn.append(tag("line", class_="grid", x1=f"{at:.1f}", x2=f"{at:.1f}", y1=4, y2=bottom))
        drawn.append(words(say(value), at, bottom + 16, class_="tick", text_anchor="middle"))
    drawn.append(words(name, (scale.start + scale.end) / 2, bottom + 37, class_="name", text_anchor="middle"))
    return tag("g", *drawn)


def _piece(scale: Axis, start: float, end: float, row: int, colour: str, said: str, inside: str = "") -> str:
    left, right = scale.at(start), scale.at(end)
    box = tag(
        "rect",
        tag("title", escape(said)),
        x=f"{left:.2f}",
        y=_top(row) + (ROW - BAR) / 2,
        width=f"{right - left:.2f}",
        height=BAR,
        fill=colour,
    )
    if not inside or right - left < svg.LETTER * len(inside) + 6:
        return box
    shade = "on-light" if _is_light(colour) else "on-dark"
    return box + words(inside, (left + right) / 2, _middle(row), class_=f"inside {shade}", text_anchor="middle")


def _figure(said: str, after: float, row: int) -> str:
    return words(said, after + 7, _middle(row), class_="value")


def _row(label: str, row: int, looks: dict[str, Look], scale: Axis, pieces: list[str]) -> str:
    name = words(svg.shortened(label, LETTERS), scale.start - 8, _middle(row), class_="label", text_anchor="end")
    return tag("g", name, *pieces, class_="series", data_series=label, style=f"--c:{looks[label].css}")


def _middle(row: int) -> float:
    return _top(row) + ROW / 2 + 4.5  # the base of letters that are centred


def _is_light(colour: str) -> bool:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue > 140
