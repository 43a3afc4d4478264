"""Reads the pages of `thinwire fit` and `thinwire contraction` below a folder, for inclusion in the report."""

import re
from html import unescape
from pathlib import Path
from typing import NamedTuple

PAGE, CONTRACTION = "fit.html", "contraction.html"  # file names in a run's folder
HEADINGS = {PAGE: "Distributions of gradients", CONTRACTION: "Compression error of methods"}
TITLE = re.compile(r"<h1>(.*?)</h1>", re.DOTALL)
MAIN = re.compile(r"<main>(.*)</main>", re.DOTALL)
FIGURE_IDS = re.compile(r"""(["'#])(fit|contraction)-""")  # made unique, as a report can include several pages
FOOTER = re.compile(r"<footer>.*?</footer>", re.DOTALL)


class EmbeddedPage(NamedTuple):
    heading: str
    title: str
    markup: str


def read(folder: Path) -> list[EmbeddedPage]:
    """All such pages below a folder, in the order of their paths."""
    found = []
    paths = [path for name in HEADINGS for path in sorted(folder.rglob(name))]
    for number, path in enumerate(paths, start=1):
        text = path.read_text("utf-8")
        title, main = TITLE.search(text), MAIN.search(text)
        if title is None or main is None:
            raise ValueError(f"{path} is not a page written by thinwire {path.stem}: write it again, or remove it")
        markup = FIGURE_IDS.sub(rf"\g<1>\g<2>-{number}-", FOOTER.sub("", main[1]))
        found.append(EmbeddedPage(HEADINGS[path.name], unescape(title[1]), markup))
    return found
