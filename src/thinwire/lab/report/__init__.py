"""What a person sees of finished runs: a table in the terminal, a picture, and a page that holds everything."""

from collections.abc import Sequence
from pathlib import Path

from thinwire.lab.links import Link
from thinwire.lab.report import fitted, page, picture
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
    """Save a page and a picture of all runs below a folder into it; returns the page's path.

    Runs without a link are shown with the modeled time on these links, if there are any.
    """
    found = sections(on_links(read(folder), links), target)
    picture.draw(found[0], looks.looks(found), folder / PICTURE)
    (folder / PAGE).write_text(page.page(found, fitted.read(folder)), "utf-8")
    return folder / PAGE
