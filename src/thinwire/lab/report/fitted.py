"""What `thinwire fit` found, on the page of the runs that the gradients are of."""

import re
from html import unescape
from pathlib import Path
from typing import NamedTuple

PAGE = "fit.html"  # what it writes beside a run
TITLE = re.compile(r"<h1>(.*?)</h1>", re.DOTALL)
MAIN = re.compile(r"<main>(.*)</main>", re.DOTALL)
NAMES = re.compile(r"""(["'#])fit-""")  # of figures, which are there once on a page
FOOTER = re.compile(r"<footer>.*?</footer>", re.DOTALL)


class Fitted(NamedTuple):
    title: str
    markup: str


def read(folder: Path) -> list[Fitted]:
    """Of every such page below a folder, in the order of their paths, what it shows."""
    found = []
    for number, path in enumerate(sorted(folder.rglob(PAGE)), start=1):
        text = path.read_text("utf-8")
        title, main = TITLE.search(text), MAIN.search(text)
        if title is None or main is None:
            raise ValueError(f"{path} is not a page that thinwire fit wrote: make it again, or take it away")
        markup = NAMES.sub(rf"\g<1>fit-{number}-", FOOTER.sub("", main[1]))
        found.append(Fitted(unescape(title[1]), markup))
    return found
