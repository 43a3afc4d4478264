"""A parsed page: its visible text, tables, figures and references."""

from html.parser import HTMLParser

REFERENCES = ("src", "href", "xlink:href", "data", "action")


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.figures: dict[str, list[str]] = {}  # by id: the elements inside
        self.references: list[str] = []
        self.texts: list[str] = []
        self._cell: list[str] | None = None
        self._figure: str | None = None
        self._silent = False
        self.feed(text)
        self.close()

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.references += [value or "" for name, value in attrs if name in REFERENCES]
        self._silent = tag in ("style", "script")
        if self._figure is not None:
            self.figures[self._figure].append(tag)
        if tag == "figure":
            self._figure = attributes["id"]
            assert self._figure not in self.figures, "ids are unique"
            self.figures[self._figure] = []
        elif tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self._cell = []

    def handle_endtag(self, tag: str) -> None:
        self._silent = False
        if tag == "figure":
            self._figure = None
        elif tag in ("td", "th"):
            assert self._cell is not None, "a cell ends where none is open"
            self.tables[-1][-1].append("".join(self._cell))
            self._cell = None

    def handle_data(self, data: str) -> None:
        if self._silent:
            return
        self.texts.append(data)
        if self._cell is not None:
            self._cell.append(data)
