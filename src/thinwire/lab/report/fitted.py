"""What `thinwire fit` and `thinwire contraction` found, on the page of the runs that the gradients are of."""

import re
from html import unescape
from pathlib import Path
from typing import NamedTuple

PAGE, CONTRACTION = "fit.html", "contraction.html"  # what they write beside a run
HEADINGS = {PAGE: "The laws of gradients", CONTRACTION: "What methods lose of gradients"}
TITLE = re.compile(r"<h1>(.*?)</h1>", re.DOTALL)
MAIN = re.compile(r"<main>(.*)</main>", re.DOTALL)
NAMES = re.compile(r"""(["'#])(fit|contraction)-""")  # of figures, which are there once on a page
FOOTER = re.compile(r"<footer>.*?</footer>", re.DOTALL)


class Fitted(NamedTuple):
    heading: str
    title: str
    markup: str


def read(folder: Path) -> list[Fitted]:
    """Of every such page below a folder, in the order of their paths, what it shows."""
    found = []
    paths = [path for name in HEADINGS for path in sorted(folder.rglob(name))]
    for number, path in enumerate(paths, start=1):
        text = path.read_text("utf-8")
        title, main = TITLE.search(text), MAIN.search(text)
        if title is None or main is None:
            raise ValueError(f"{path} is not a page that thinwire {path.stem} wrote: make it again, or take it away")
        markup = NAMES.sub(rf"\g<1>\g<2>-{number}-", FOOTER.sub("", main[1]))
        found.append(Fitted(HEADINGS[path.name], unescape(title[1]), markup))
    return found
