"""A rank that is slower than the others, as in a cluster of unequal machines."""

import re
import time
from dataclasses import dataclass
from math import isfinite
from typing import Self


@dataclass(frozen=True)
class Straggler:
    rank: int
    factor: float  # how many times longer it computes

    @classmethod
    def parse(cls, text: str, ranks: int) -> Self:
        """Read "1:3": rank 1, three times slower."""
        read = re.fullmatch(r"(\d+):(\d+(?:\.\d+)?)", text.strip(), re.ASCII)
        if read is None:
            raise ValueError(
                f"{text!r} is no straggler: write RANK:FACTOR, such as 1:3 for a rank 1 three times slower"
            )
        rank, factor = int(read[1]), float(read[2])
        if rank >= ranks:
            raise ValueError(f"the straggler is one of the ranks 0 to {ranks - 1}, not {rank}")
        if not (factor >= 1 and isfinite(factor)):
            raise ValueError(f"a straggler is 1 times slower or more, not {read[2]} times")
        return cls(rank, factor)

    def __str__(self) -> str:
        return f"rank {self.rank} is {self.factor:g}x slower"


def factor_of(straggler: str | None, rank: int, ranks: int) -> float:
    """How many times longer a rank computes by a plan's straggler."""
    slow = None if straggler is None else Straggler.parse(straggler, ranks)
    return slow.factor if slow is not None and slow.rank == rank else 1.0


class Pace:
    """Makes a real rank as slow as it is to be: it sleeps as long as its last step would have taken longer."""

    def __init__(self, factor: float) -> None:
        self.slept = 0.0
        self._factor, self._computed = factor, 0.0

    def restart(self, computed: float, slept: float) -> None:
        """Go on after so many seconds of computing and of sleep."""
        self._computed, self.slept = computed, slept

    def wait(self, computed: float) -> None:
        """Before a step; told how many seconds this rank has computed so far, in steps alone."""
        seconds = (self._factor - 1) * (computed - self._computed)
        self._computed = computed
        if seconds > 0:
            time.sleep(seconds)
            self.slept += seconds
