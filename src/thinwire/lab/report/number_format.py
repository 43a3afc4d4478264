"""Numbers, units and names as text."""

import re
from collections.abc import Callable
from math import isfinite


def human(nbytes: float) -> str:
    for unit in ("B", "kB", "MB"):
        if nbytes < 1000:
            return f"{nbytes:.0f} {unit}" if unit == "B" or nbytes >= 100 else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.2f} GB"


def duration(seconds: float) -> str:
    """About three digits, in a unit that keeps the number short."""
    if not isfinite(seconds):
        return str(seconds)
    if seconds >= 600:
        return f"{seconds / 60:.1f} min" if seconds < 36_000 else f"{seconds / 3600:.1f} h"
    if seconds >= 1:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} us"


def times(factor: float) -> str:
    """A factor: two decimals below 10, one above."""
    return f"{factor:.2f}x" if factor < 10 else f"{factor:.1f}x"


def is_share(metric: str) -> bool:
    """Whether a metric is a fraction, which is shown in percent."""
    return metric.endswith(("accuracy", "iou"))


def metric_text(metric: str, value: float, spread: float | None = None) -> str:
    """A metric, with its spread over seeds if given."""
    if is_share(metric):
        return f"{value:.1%}" if spread is None else f"{value:.1%} ± {100 * spread:.1f}"
    return f"{value:.3f}" if spread is None else f"{value:.3f} ± {spread:.3f}"


def distance_text(share: float) -> str:
    """A distance relative to a norm, in percent; a small one is not rounded to 0."""
    if 0 < share < 1e-4:
        return "<0.01%"
    return f"{share:.2%}" if share < 0.1 else f"{share:.1%}"


def enumerated(words: list[str]) -> str:
    """A list in a sentence: a, b and c."""
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def metric_name(metric: str) -> str:
    return metric.replace("_", " ")


def link_text(link: str) -> str:
    """A link for readers: 20mbit is 20 Mbit/s, 50mbit/10mbit is down and up, star:20mbit is a star."""
    if link.startswith("star:"):
        return f"a star of {link_text(link.removeprefix('star:'))}"
    rates = [re.sub(r"([kmg]?)bit$", lambda unit: f" {unit[1].upper()}bit/s", rate) for rate in link.split("/")]
    rates = [rate.replace("Kbit", "kbit") for rate in rates]
    return rates[0] if len(rates) == 1 else f"{rates[0]} down, {rates[1]} up"


def counted(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def clock(most: float) -> Callable[[float], str]:
    """The format of times on an axis that ends at `most` seconds, all in one unit."""
    units = {3600.0: "h", 60.0: "min", 1.0: "s", 1e-3: "ms", 1e-6: "us"}
    unit = next((unit for unit in units if most >= (2.5 * unit if unit < 60 else 4 * unit)), 1e-6)
    return lambda seconds: f"{seconds / unit:g} {units[unit]}" if seconds else "0"


def rounded_bytes(nbytes: float) -> str:
    number, unit = human(nbytes).split(" ")
    return f"{float(number):g} {unit}"


def rounded_count(number: float) -> str:
    """A count at a tick of an axis: thousands as k, millions as M."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:g}{unit}"
    return f"{number:g}"


def percent(share: float) -> str:
    """A fraction at a tick of an axis, in percent with all its decimals."""
    return f"{round(100 * share, 6):g}%"


def fine_percent(share: float) -> str:
    """As `percent`, with an exponent for very small fractions."""
    return percent(share) if share >= 1e-4 or share == 0 else f"{100 * share:.0e}%".replace("e-0", "e-")


def short(value: float) -> str:
    return f"{value:.6g}"
