"""A figure of the benchmarks: a ratio, and what is said of it where there is a bar."""

from typing import NamedTuple


class Row(NamedTuple):
    what: str
    ratio: float
    judged: str = ""


def at_most(ratio: float, bar: float) -> str:
    return f"<= {bar:g}: {'met' if ratio <= bar else 'missed'}"


def at_least(ratio: float, bar: float) -> str:
    return f">= {bar:g}: {'met' if ratio >= bar else 'missed'}"


def at_least_when_quiet(ratio: float, busy: float, quiet: float) -> str:
    """Against two bars: one that holds whatever else the machine does, one for when it does nothing else."""
    which = "met, also the one for a quiet machine" if ratio >= quiet else "met" if ratio >= busy else "missed"
    return f">= {busy:g}, on a quiet machine {quiet:g}: {which}"
