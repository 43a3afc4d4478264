"""Data sets, read from the user's folder of data sets."""

import os
from pathlib import Path

__all__ = ["folder"]


def folder(explicit: Path | None) -> Path | None:
    """The folder with data sets: the given one, else that of THINWIRE_DATA, else None."""
    variable = os.environ.get("THINWIRE_DATA")
    if explicit is not None:
        found, source = explicit.expanduser(), f"--data {explicit}"
    elif variable:
        found, source = Path(variable).expanduser(), f"THINWIRE_DATA={variable}"
    else:
        return None
    if not found.is_dir():
        raise ValueError(f"{source} is not a folder")
    return found
