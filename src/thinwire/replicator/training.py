"""All that a rank remembers of a training, to be saved and gone on from."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..handle import Handle
from ..transports import Draws, Meter, Transport
from . import checkpoints
from .checkpoints import Kept


class Training:
    """What is trained, by which method, and how far it has come."""

    def __init__(self, world: Transport, method: str, meter: Meter) -> None:
        self.world, self.method, self.meter = world, method, meter
        self.handles: list[Handle] = []  # of what is wrapped, in that order
        self.kept: dict[str, Kept] = {}
        self.step = 0  # how many steps have been made

    def keep(self, what: Mapping[str, Kept]) -> None:
        taken = [name for name in what if name in self.kept]
        if taken:
            raise ValueError(f"{taken[0]!r} is kept already")
        self.kept |= what

    def wrap(self, handle: Handle, model: Kept, optimizer: Kept) -> None:
        self.handles.append(handle)
        number = sum(name.startswith("model") for name in self.kept)
        self.keep({f"model {number}": model, f"optimizer {number}": optimizer})

    def save(self, folder: Path, inputs: Mapping[str, Any]) -> None:
        """Write this rank's file."""
        state = {
            "ranks": self.world.size,
            "method": self.method,
            "inputs": inputs,
            "draws": Draws.now().plain(),
            "meter": [self.meter.as_dict(prefix=""), self.meter.itemised()],
            "kept": {name: checkpoints.saved(kept) for name, kept in self.kept.items()},
            "handles": [handle.state_dict() for handle in self.handles],
        }
        checkpoints.save(folder, self.world.rank, self.step, state)

    def go_on(self, folder: Path) -> dict[str, Any] | None:
        """Take up what is in a folder, if anything is; returns where the inputs were."""
        step = checkpoints.newest(folder, self.world)
        if step is None:
            return None
        state = checkpoints.load(folder, self.world.rank, step)
        for what, here in (("method", self.method), ("ranks", self.world.size)):
            if state[what] != here:
                raise ValueError(f"{folder} is of a training with {what} {state[what]}, and this one has {here}")
        if state["kept"].keys() != self.kept.keys():
            there, here = (", ".join(sorted(names)) or "nothing" for names in (state["kept"], self.kept))
            raise ValueError(f"{folder} holds {there}, and this training has {here}")
        for name, kept in self.kept.items():
            checkpoints.load_into(kept, state["kept"][name])
        for handle, saved in zip(self.handles, state["handles"], strict=True):
            handle.load_state_dict(saved)
        Draws.read(state["draws"]).put()
        self.meter.load(*state["meter"])
        self.step = step
        inputs: dict[str, Any] = state["inputs"]
        return inputs
