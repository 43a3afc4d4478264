from dataclasses import dataclass


@dataclass(frozen=True)
class Plot:
    """A drawing with its title, note and legend."""

    key: str  # the end of its id on the page
    title: str
    drawing: str  # SVG
    note: str = ""
    legend: tuple[tuple[str, str], ...] = ()  # name and color, if colors are not methods
    method: str = ""  # the method, if the plot is of one only
