"""The rates of a link, in bits per second: down to a rank, and up from it."""

import re
from dataclasses import dataclass
from typing import Self

UNITS = {"gbit": 10**9, "mbit": 10**6, "kbit": 10**3, "bit": 1}
LOWEST, HIGHEST = 10**4, 3 * 10**10  # bits/s: below, one packet takes seconds; above, tbf's 32-bit rate overflows
EXAMPLES = "such as 100mbit, 1gbit, 2.5gbit, 50mbit/10mbit for down/up, or star:100mbit"
STAR = "star:"
CENTER = 0  # the rank in the middle of a star


@dataclass(frozen=True)
class Link:
    down: int  # bits/s, to a rank
    up: int  # bits/s, from a rank
    star: bool = False  # the rank in the middle has a separate link to each other rank

    def __post_init__(self) -> None:
        for rate in (self.down, self.up):
            if not LOWEST <= rate <= HIGHEST:
                limits = f"{_shown(LOWEST)} to {_shown(HIGHEST)}"
                raise ValueError(f"a link of {_shown(rate)} cannot be created here: it must be from {limits}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse "100mbit", or "50mbit/10mbit" for down/up, or "star:100mbit" for a star of such links."""
        star = text.strip().lower().startswith(STAR)
        rates = [_rate(part, text) for part in text.strip()[len(STAR) if star else 0 :].split("/")]
        if len(rates) > 2:
            raise ValueError(f"{text!r} is not a link: it has more than two rates; write it {EXAMPLES}")
        return cls(rates[0], rates[-1], star)

    def __str__(self) -> str:
        rates = _shown(self.down) if self.down == self.up else f"{_shown(self.down)}/{_shown(self.up)}"
        return STAR + rates if self.star else rates

    def is_limited(self, rank: int) -> bool:
        """Whether the total traffic of this rank is limited: in a star, that of the middle is not."""
        return not (self.star and rank == CENTER)


def _rate(part: str, text: str) -> int:
    read = re.fullmatch(rf"(\d+(?:\.\d+)?)({'|'.join(UNITS)})", part.strip().lower(), re.ASCII)
    if read is None:
        raise ValueError(f"{text!r} is not a link: {part!r} is not a rate; write it {EXAMPLES}")
    integer, _, fraction = read[1].partition(".")
    # In integers, as 2.3 * 10**9 is not exact.
    bits, rest = divmod(int(integer + fraction) * UNITS[read[2]], 10 ** len(fraction))
    if rest:
        raise ValueError(f"{text!r} is not a link: {part!r} is not an integer number of bits per second")
    return int(bits)


def _shown(rate: int) -> str:
    unit = next((unit for unit, bits in UNITS.items() if rate >= bits), "bit")
    thousandths = rate * 1000 // UNITS[unit]
    if thousandths * UNITS[unit] != rate * 1000:  # too fine for three digits
        return f"{rate}bit"
    return f"{thousandths / 1000:.3f}".rstrip("0").rstrip(".") + unit
