"""Colors: the same one for a method in all plots, safe for color blindness (Okabe and Ito's, without the yellow)."""

from collections.abc import Iterable
from dataclasses import dataclass

from thinwire.lab.report.summary import PARTS, Section

INK = ("#1b1f24", "#e6edf3")  # in light and dark mode
HUES = (
    ("#0072b2", "#4aa8e0"),
    ("#d55e00", "#ff8a4c"),
    ("#009e73", "#2fc79a"),
    ("#cc79a7", "#e79ac4"),
    ("#e69f00", "#f2b63c"),
    ("#56b4e9", "#8fd0f5"),
)
DASHES = ("", "7 3", "2 3")  # for the first, second and third use of a color
TIMES = dict(zip(PARTS, ("#3d4f87", "#5aa9c7", "#f0a830", "#9c4a6e"), strict=True))
# Tol's muted scheme for kinds of layers: for areas, for lines in light mode, for lines in dark mode.
KINDS = {
    "conv": ("#4b3ea8", "#4b3ea8", "#9d90f2"),
    "dense": ("#cc6677", "#c4525f", "#ea8f9d"),
    "recurrent": ("#117733", "#117733", "#56bd78"),
    "embedding": ("#ddcc77", "#a98718", "#ddcc77"),
    "attention": ("#44aa99", "#2a8f7f", "#5fcdb9"),
    "norm": ("#882255", "#882255", "#d878a8"),
    "other": ("#999933", "#7c7c1c", "#c4c462"),
    "joined ones": ("#332288", "#332288", "#9d8be8"),
    "small ones": ("#88ccee", "#2f93c4", "#88ccee"),
}


@dataclass(frozen=True)
class Look:
    hue: int | None  # index into HUES; None: INK, for dense
    dash: str = ""
    of: str = "m"  # prefix of the CSS variable: m for methods, k for kinds of layers

    @property
    def css(self) -> str:
        return "var(--ink)" if self.hue is None else f"var(--{self.of}{self.hue})"

    @property
    def printed(self) -> str:
        return INK[0] if self.hue is None else HUES[self.hue][0]


def looks(sections: Iterable[Section]) -> dict[str, Look]:
    """A look for each label, the same in all sections."""
    chosen: dict[str, Look] = {}
    others = 0
    for section in sections:
        for entry in section.entries:
            if entry.label in chosen:
                continue
            if entry.is_dense:
                chosen[entry.label] = Look(None)
            else:
                chosen[entry.label] = Look(others % len(HUES), DASHES[others // len(HUES) % len(DASHES)])
                others += 1
    return chosen


def kind_order(kind: str) -> int:
    return list(KINDS).index(kind if kind in KINDS else "other")


def kind_look(kind: str, dash: str = "") -> Look:
    return Look(kind_order(kind), dash, "k")


def kind_area(kind: str) -> str:
    return KINDS.get(kind, KINDS["other"])[0]


def variables(dark: bool) -> str:
    """The colors as CSS variables."""
    hues = "".join(f"--m{i}:{pair[dark]};" for i, pair in enumerate(HUES))
    kinds = "".join(f"--k{i}:{shades[1 + dark]};" for i, shades in enumerate(KINDS.values()))
    return f"--ink:{INK[dark]};{hues}{kinds}"
