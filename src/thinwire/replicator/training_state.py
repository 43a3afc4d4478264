"""All that a rank remembers of a training, to be saved and gone on from."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..handle import Handle
from ..transports import Meter, RandomState, Transport
from . import checkpoint_files as checkpoints
from .checkpoint_files import Kept


class Begun(NamedTuple):
    """A run that is saved."""

    inputs: dict[str, Any] | None  # where they were, if it is gone on with
    past: bool = False  # whether it was made to its end before, and others after it


class Found(NamedTuple):
    """The newest checkpoint that there was: which run it is of, and where the inputs of that were."""

    step: int
    run: int
    inputs: dict[str, Any]


class Training:
    """What is trained, by which method, and how far it has come."""

    def __init__(self, world: Transport, method: str, meter: Meter) -> None:
        self.world, self.method, self.meter = world, method, meter
        self.handles: list[Handle] = []  # of what is wrapped, in that order
        self.kept: dict[str, Kept] = {}
        self.step = 0  # how many steps have been made
        self._runs: Counter[Path] = Counter()  # that were begun here and are saved in a folder
        self._found: dict[Path, Found | None] = {}  # what there was in it before the first of them

    def keep(self, what: Mapping[str, Kept]) -> None:
        taken = [name for name in what if name in self.kept]
        if taken:
            raise ValueError(f"{taken[0]!r} is kept already")
        for name, kept in what.items():
            if not (hasattr(kept, "state_dict") and hasattr(kept, "load_state_dict")):
                raise TypeError(
                    f"{name!r} cannot be kept: a {type(kept).__name__} has no state_dict to save and to load"
                )
        self.kept |= what

    def wrap(self, handle: Handle, model: Kept, optimizer: Kept) -> None:
        self.handles.append(handle)
        number = sum(name.startswith("model") for name in self.kept)
        self.keep({f"model {number}": model, f"optimizer {number}": optimizer})

    def save(self, folder: Path, inputs: Mapping[str, Any]) -> None:
        """Write this rank's file."""
        state = {
            "run": self._runs[folder] - 1,
            "ranks": self.world.size,
            "method": self.method,
            "inputs": inputs,
            "draws": RandomState.now().plain(),
            "meter": [self.meter.as_dict(prefix=""), self.meter.itemized()],
            "kept": {name: checkpoints.saved(kept) for name, kept in self.kept.items()},
            "handles": [handle.state_dict() for handle in self.handles],
        }
        checkpoints.save(folder, self.world.rank, self.step, state)

    def begin(self, folder: Path) -> Begun:
        """Begin a run; the first one in a folder takes up what is there, whichever of its runs that is of.

        A script that was started again comes by the runs that it has made before: they are past. What it does between
        them (steps of a schedule) is done already, so what is there is taken up again where it goes on.
        """
        number = self._runs[folder]
        if number == 0:
            self._found[folder] = self._find(folder)
        self._runs[folder] += 1
        found = self._found[folder]
        if found is None or number > found.run:
            return Begun(None)
        if number == found.run:
            self._take_up(folder, checkpoints.load(folder, self.world.rank, found.step), found.step)
        return Begun(found.inputs, past=number < found.run)

    def _find(self, folder: Path) -> Found | None:
        step = checkpoints.newest(folder, self.world)
        if step is None:
            return None
        state = checkpoints.load(folder, self.world.rank, step)
        for what, here in (("method", self.method), ("ranks", self.world.size)):
            if state[what] != here:
                raise ValueError(f"{folder} is of a training with {what} {state[what]}, and this one has {here}")
        if state["run"] > 0 and state["kept"].keys() == self.kept.keys():  # else some is made by the script later
            self._take_up(folder, state, step)
        return Found(step, state["run"], state["inputs"])

    def _take_up(self, folder: Path, state: dict[str, Any], step: int) -> None:
        if state["kept"].keys() != self.kept.keys():
            there, here = (", ".join(sorted(names)) or "nothing" for names in (state["kept"], self.kept))
            raise ValueError(f"{folder} holds {there}, and this training has {here}")
        for name, kept in self.kept.items():
            checkpoints.load_into(kept, state["kept"][name])
        for handle, saved in zip(self.handles, state["handles"], strict=True):
            handle.load_state_dict(saved)
        RandomState.read(state["draws"]).put()
        self.meter.load(*state["meter"])
        self.step = step
