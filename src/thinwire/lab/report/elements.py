"""HTML elements of the pages. A page loads nothing, and can be read on a phone and on paper."""

from collections.abc import Iterable
from html import escape
from importlib.resources import files

from thinwire.lab.report.charts import style as looks
from thinwire.lab.report.charts.plot import Plot
from thinwire.lab.report.charts.style import Look
from thinwire.lab.report.charts.svg import tag


def document(title: str, lead: str, *main: str) -> str:
    """A complete page. The title is text; the lead below it and the main part are markup."""
    style = f":root{{{looks.variables(dark=False)}}}" + (
        f"@media screen and (prefers-color-scheme:dark){{:root{{{looks.variables(dark=True)}}}}}"
    )
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        + tag("title", escape(f"thinwire: {title}"))
        + tag("style", style, _resource("page.css"))
    )
    body = [
        tag("header", tag("div", tag("p", "thinwire", class_="brand"), tag("h1", escape(title)), lead)),
        tag("main", *main),
        tag("script", _resource("page.js")),
    ]
    return "\n".join(['<!doctype html>\n<html lang="en">', tag("head", head), "<body>", *body, "</body></html>", ""])


def _resource(name: str) -> str:
    return files("thinwire.lab.report").joinpath(name).read_text("utf-8")


def cards(found: list[str]) -> str:
    return tag("div", *found, class_="cards") if found else ""


def card(figure: str, what: str, sentence: str, look: Look) -> str:
    """A highlighted figure with a sentence about it."""
    content = tag("strong", escape(figure)) + tag("b", escape(what)) + tag("p", escape(sentence))
    return tag("div", content, class_="card", style=f"--c:{look.css}")


def table(head: Iterable[str], rows: list[str]) -> str:
    names = tag("tr", *(tag("th", escape(name)) for name in head))
    return tag("div", tag("table", tag("thead", names), tag("tbody", *rows), class_="figures"), class_="scroll")


def row(name: str, figures: Iterable[str]) -> str:
    """A row of a table. The name is markup, the figures are text."""
    return tag("tr", tag("th", name, scope="row"), *(tag("td", escape(figure)) for figure in figures))


def swatch(look: Look) -> str:
    """A color sample; a ring stands for a dashed line."""
    return tag("span", class_="swatch ring" if look.dash else "swatch", style=f"--c:{look.css}")


def figure(plot: Plot, key: str) -> str:
    """A plot with its caption, legend and note. The key is the prefix of its id."""
    legend = [
        tag("span", tag("span", class_="swatch", style=f"--c:{color}") + escape(name)) for name, color in plot.legend
    ]
    return tag(
        "figure",
        tag("figcaption", escape(plot.title)),
        tag("div", *legend, class_="legend") if legend else "",
        plot.drawing,
        tag("p", escape(plot.note)) if plot.note else "",
        id=f"{key}-{plot.key}",
        **({"class_": "series", "data_series": plot.method} if plot.method else {}),
    )
