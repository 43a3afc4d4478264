"""The folder of a run, and how often the run saves a checkpoint there."""

from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

CHECKPOINTS = "checkpoint"  # subfolder of a run's folder
MINUTES = 5.0  # between two checkpoints


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run; without one, nothing is saved."""

    folder: Path | None = None
    minutes: float = MINUTES  # between two checkpoints; 0: none are saved

    @property
    def interval(self) -> float:
        """Seconds between two checkpoints; 0: none are saved."""
        return 0.0 if self.folder is None else 60 * self.minutes

    @property
    def checkpoints(self) -> Path | None:
        return self.folder / CHECKPOINTS if self.folder is not None and self.interval else None


def check_minutes(minutes: Any) -> None:
    """Raise ValueError unless this is a valid time between two checkpoints."""
    if isinstance(minutes, bool) or not isinstance(minutes, int | float) or not 0 <= minutes < inf:
        raise ValueError(f"checkpoint_minutes takes a number, 0 for no checkpoints, not {minutes!r}")
