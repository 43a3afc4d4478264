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
        """Parse "1:3": rank 1 is three times slower."""
        read = re.fullmatch(r"(\d+):(\d+(?:\.\d+)?)", text.strip(), re.ASCII)
        if read is None:
            raise ValueError(
                f"{text!r} is not a straggler: write RANK:FACTOR, such as 1:3 for a rank 1 that is three times slower"
            )
        rank, factor = int(read[1]), float(read[2])
        if rank >= ranks:
            raise ValueError(f"the straggler must be one of the ranks 0 to {ranks - 1}, not {rank}")
        if not (factor >= 1 and isfinite(factor)):
            raise ValueError(f"a straggler must be at least 1 times slower, not {read[2]} times")
        return cls(rank, factor)

    def __str__(self) -> str:
        return f"rank {self.rank} is {self.factor:g}x slower"


def factor_of(straggler: str | None, rank: int, ranks: int) -> float:
    """How many times longer a rank computes, given a plan's straggler."""
    slow = None if straggler is None else Straggler.parse(straggler, ranks)
    return slow.factor if slow is not None and slow.rank == rank else 1.0


class Pace:
    """Slows a real rank down: before each step, it sleeps for the additional time of the last one."""

    def __init__(self, factor: float) -> None:
        self.slept = 0.0
        self._factor, self._computed = factor, 0.0

    def restart(self, computed: float, slept: float) -> None:
        """Continue after these seconds of computation and of sleep."""
        self._computed, self.slept = computed, slept

    def wait(self, computed: float) -> None:
        """Call before a step, with the seconds that this rank has computed so far."""
        seconds = (self._factor - 1) * (computed - self._computed)
        self._computed = computed
        if seconds > 0:
            time.sleep(seconds)
            self.slept += seconds
