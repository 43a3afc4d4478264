"""Reports on finished runs: a table for the terminal, a picture, and an HTML page."""

from collections.abc import Sequence
from pathlib import Path

from thinwire.lab.links import Link
from thinwire.lab.report import embedded_pages, page, picture
from thinwire.lab.report.charts import style as looks
from thinwire.lab.report.number_format import human
from thinwire.lab.report.on_links import on_links
from thinwire.lab.report.picture import check_drawing
from thinwire.lab.report.reading import read
from thinwire.lab.report.summary import sections
from thinwire.lab.report.table import table

__all__ = ["PAGE", "PICTURE", "check_drawing", "human", "on_links", "read", "table", "write"]

PAGE, PICTURE = "report.html", "comparison.png"


def write(folder: Path, target: float | None = None, links: Sequence["Link"] = ()) -> Path:
    """Write the page and the picture of all runs below a folder into that folder; returns the page's path.

    With `links`, runs without a link are shown with their modeled time on each of these links.
    """
    found = sections(on_links(read(folder), links), target)
    picture.draw(found[0], looks.looks(found), folder / PICTURE)
    (folder / PAGE).write_text(page.page(found, embedded_pages.read(folder)), "utf-8")
    return folder / PAGE
