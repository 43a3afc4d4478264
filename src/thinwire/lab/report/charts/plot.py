from dataclasses import dataclass


@dataclass(frozen=True)
class Plot:
    """A drawing and what is said about it."""

    key: str  # what it is, for links and tests
    title: str
    drawing: str  # SVG
    note: str = ""
    legend: tuple[tuple[str, str], ...] = ()  # what a color means, where it is not a method
    method: str = ""  # whose it is, where it is of one method only
