"""Tables in the terminal, in one style."""

from typing import Any

from rich import box
from rich.table import Table


def plain_table(**settings: Any) -> Table:
    """An empty table that leaves its width to its content."""
    return Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold", **settings)
