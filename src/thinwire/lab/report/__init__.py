"""What a person sees of finished runs: a table in the terminal, a picture, and a page that holds everything."""

from pathlib import Path

from thinwire.lab.report import fitted, looks, page, picture
from thinwire.lab.report.picture import check_drawing
from thinwire.lab.report.reading import read
from thinwire.lab.report.summary import sections
from thinwire.lab.report.table import plain_table, table
from thinwire.lab.report.units import human

__all__ = ["PAGE", "PICTURE", "check_drawing", "human", "plain_table", "read", "table", "write"]

PAGE, PICTURE = "report.html", "comparison.png"


def write(folder: Path, target: float | None = None) -> Path:
    """Save a page and a picture of all runs below a folder into it; returns the page's path."""
    found = sections(read(folder), target)
    picture.draw(found[0], looks.looks(found), folder / PICTURE)
    (folder / PAGE).write_text(page.page(found, fitted.read(folder)), "utf-8")
    return folder / PAGE
