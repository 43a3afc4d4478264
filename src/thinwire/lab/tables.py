"""The common style of tables in the terminal."""

from typing import Any

from rich import box
from rich.table import Table


def plain_table(**settings: Any) -> Table:
    """An empty table in the common style, as wide as its content."""
    return Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold", **settings)
