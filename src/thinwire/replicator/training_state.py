"""The state of a rank's training: what checkpoints save, and resuming from them."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..handle import Handle
from ..transports import Meter, RandomState, Transport
from . import checkpoint_files as checkpoints
from .checkpoint_files import Kept


class RunStart(NamedTuple):
    """How a run starts."""

    inputs: dict[str, Any] | None  # the saved state of the inputs, if the run resumes
    completed: bool = False  # whether it was completed before the script was restarted, and a later run was saved


class Found(NamedTuple):
    """The newest checkpoint: its step, the index of its run, and the state of that run's inputs."""

    step: int
    run: int
    inputs: dict[str, Any]


class Training:
    """Models, optimizers and other saved objects, the method, and the number of steps."""

    def __init__(self, world: Transport, method: str, meter: Meter) -> None:
        self.world, self.method, self.meter = world, method, meter
        self.handles: list[Handle] = []  # of the wrapped models, in order
        self.kept: dict[str, Kept] = {}
        self.step = 0  # number of completed steps
        self._runs: Counter[Path] = Counter()  # number of runs started, by checkpoint folder
        self._found: dict[Path, Found | None] = {}  # the newest checkpoint in each folder before its first run

    def keep(self, new: Mapping[str, Kept]) -> None:
        duplicates = [name for name in new if name in self.kept]
        if duplicates:
            raise ValueError(f"{duplicates[0]!r} is kept already")
        for name, kept in new.items():
            if not (hasattr(kept, "state_dict") and hasattr(kept, "load_state_dict")):
                raise TypeError(f"{name!r} cannot be kept: {type(kept).__name__} has no state_dict and load_state_dict")
        self.kept |= new

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

    def start(self, folder: Path) -> RunStart:
        """Start a run; the first one in a folder loads its newest checkpoint, whichever run that belongs to.

        A restarted script skips the runs that it completed before. Code between them (such as steps of a schedule) runs
        again, although the checkpoint includes its effects. So the checkpoint is loaded a second time when the
        interrupted run starts.
        """
        number = self._runs[folder]
        if number == 0:
            self._found[folder] = self._find(folder)
        self._runs[folder] += 1
        found = self._found[folder]
        if found is None or number > found.run:
            return RunStart(None)
        if number == found.run:
            self._restore(folder, checkpoints.load(folder, self.world.rank, found.step), found.step)
        return RunStart(found.inputs, completed=number < found.run)

    def _find(self, folder: Path) -> Found | None:
        step = checkpoints.newest(folder, self.world)
        if step is None:
            return None
        state = checkpoints.load(folder, self.world.rank, step)
        for what, current in (("method", self.method), ("ranks", self.world.size)):
            if state[what] != current:
                raise ValueError(
                    f"the checkpoints in {folder} are from a run with {what} {state[what]}, and this one has {current}"
                )
        # With other keys, the script creates some objects later: the checkpoint is loaded when the run starts.
        if state["run"] > 0 and state["kept"].keys() == self.kept.keys():
            self._restore(folder, state, step)
        return Found(step, state["run"], state["inputs"])

    def _restore(self, folder: Path, state: dict[str, Any], step: int) -> None:
        if state["kept"].keys() != self.kept.keys():
            saved, current = (", ".join(sorted(names)) or "nothing" for names in (state["kept"], self.kept))
            raise ValueError(f"the checkpoints in {folder} contain {saved}, and this run has {current}")
        for name, kept in self.kept.items():
            checkpoints.load_into(kept, state["kept"][name])
        for handle, handle_state in zip(self.handles, state["handles"], strict=True):
            handle.load_state_dict(handle_state)
        RandomState.read(state["draws"]).put()
        self.meter.load(*state["meter"])
        self.step = step
