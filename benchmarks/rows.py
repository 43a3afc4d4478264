"""One line of the benchmarks: a ratio, and whether it meets its target."""

from typing import NamedTuple


class Row(NamedTuple):
    what: str
    ratio: float
    verdict: str = ""  # the target and whether it is met; empty without a target


def at_most(ratio: float, target: float) -> str:
    return f"<= {target:g}: {'met' if ratio <= target else 'missed'}"


def at_least(ratio: float, target: float) -> str:
    return f">= {target:g}: {'met' if ratio >= target else 'missed'}"


def at_least_if_quiet(ratio: float, busy: float, quiet: float) -> str:
    """Compare with two targets: one for a busy machine, one for a machine without other load."""
    verdict = "met, also that for a quiet machine" if ratio >= quiet else "met" if ratio >= busy else "missed"
    return f">= {busy:g}, on a quiet machine {quiet:g}: {verdict}"
