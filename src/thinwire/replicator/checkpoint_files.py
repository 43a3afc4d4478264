"""Everything that a replica needs to go on where it was, in a file of its own.

A checkpoint is saved in two phases, so that a kill at any moment leaves one that all ranks have: each rank writes its
file as READY; when all have, each renames its own to DONE and removes older ones.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..runtime.replica_of import is_dtensor, local
from ..transports import Transport

FORMAT = 2
PART, READY, DONE = ".part", ".ready", ".pt"  # being written; whole; known to be whole on all ranks


class Kept(Protocol):
    """What can be saved: a module, an optimizer, a schedule, a loader."""

    def state_dict(self) -> Any: ...
    def load_state_dict(self, state_dict: Any, /) -> Any: ...


def save(folder: Path, rank: int, step: int, state: Mapping[str, Any]) -> None:
    """Write a rank's file; `finish` comes when all ranks have written theirs."""
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / _name(rank, step, PART)
    torch.save({"format": FORMAT, "step": step, **state}, part)
    _check_readable(part, state["kept"])
    os.replace(part, part.with_suffix(READY))  # a full disk or a kill leaves a whole file or none


def finish(folder: Path, rank: int, step: int, keep: int) -> None:
    """All ranks have written their files of this step: older ones are not needed, but for the newest `keep`."""
    os.replace(folder / _name(rank, step, READY), folder / _name(rank, step))
    for old in _steps(folder, rank, DONE)[:-keep]:
        (folder / _name(rank, old)).unlink()
    for stale in _steps(folder, rank, READY):
        (folder / _name(rank, stale, READY)).unlink()


def _check_readable(part: Path, kept: Mapping[str, Any]) -> None:
    """What cannot be read back is to be known now, and not when it is needed."""
    try:
        torch.load(part, weights_only=True)
    except Exception as error:
        if type(error).__name__ != "UnpicklingError":
            raise
        part.unlink()
        wrong = next((name for name, state in kept.items() if not _is_plain(state)), "something that is saved")
        raise ValueError(
            f"the state of {wrong!r} cannot be saved: it has to be of tensors, numbers and texts, in dicts, lists and "
            "tuples"
        ) from None


def _is_plain(state: Any) -> bool:
    if isinstance(state, dict):
        return all(map(_is_plain, (*state, *state.values())))
    if isinstance(state, list | tuple):
        return all(map(_is_plain, state))
    return state is None or type(state) in (bool, int, float, str, bytes) or isinstance(state, Tensor)


def newest(folder: Path, transport: Transport) -> int | None:
    """The last step that all ranks have a file of; None if nobody has one, or the first was not written by all."""
    done, ready = (",".join(map(str, _steps(folder, transport.rank, kind))) for kind in (DONE, READY))
    found = [told.decode().split(";") for told in transport.gather(f"{done};{ready}".encode())]
    finished, there = [_numbers(done) for done, _ in found], [_numbers(done) | _numbers(ready) for done, ready in found]
    common = set.intersection(*there)
    if not common and any(finished):
        without = ", ".join(str(r) for r, steps in enumerate(there) if not steps)
        raise ValueError(
            f"there is no step of which all {transport.size} ranks have a checkpoint in {folder}"
            f"{f': rank {without} has none' if without else ''}. Was it written by as many, or on other machines?"
        )
    return max(common, default=None)


def _numbers(text: str) -> set[int]:
    return {int(number) for number in text.split(",") if number.strip()}


def load(folder: Path, rank: int, step: int) -> dict[str, Any]:
    if not (folder / _name(rank, step)).exists():  # a kill came when all had written theirs
        os.replace(folder / _name(rank, step, READY), folder / _name(rank, step))
    state: dict[str, Any] = torch.load(folder / _name(rank, step), map_location="cpu", weights_only=True)
    if state["format"] != FORMAT:
        raise ValueError(f"{folder} was written in format {state['format']}, and this is format {FORMAT}")
    return state


def saved(kept: Kept) -> Any:
    """What is to be written of it. Of tensors that several processes have parts of, this one's."""
    return _each(kept.state_dict(), local)


def load_into(kept: Kept, state: Any) -> None:
    """Give it back what was written."""
    if isinstance(kept, Optimizer):
        parameters = [p for group in kept.param_groups for p in group["params"]]
        state = state | {"state": {i: _split_like(parameters[i], here) for i, here in state["state"].items()}}
    else:
        there = kept.state_dict()
        if isinstance(there, dict) and isinstance(state, dict):
            state = {name: _split_like(there.get(name), x) for name, x in state.items()}
    kept.load_state_dict(state)


def _split_like(whole: Any, state: Any) -> Any:
    """What was this process's part of a tensor, as a part of one again."""
    if not is_dtensor(whole):
        return state
    shape = local(whole).shape
    place = whole.device_mesh, whole.placements
    return _each(state, lambda x: type(whole.data).from_local(x, *place) if x.shape == shape else x)


def _each(state: Any, act: Callable[[Tensor], Tensor]) -> Any:
    """A state with what a function makes of each of its tensors."""
    if isinstance(state, Tensor):
        return act(state)
    if isinstance(state, dict):
        return {key: _each(inner, act) for key, inner in state.items()}
    if isinstance(state, list | tuple) and not hasattr(state, "_fields"):
        return type(state)(_each(inner, act) for inner in state)
    return state


def _steps(folder: Path, rank: int, kind: str) -> list[int]:
    """Of which there is a file, in order."""
    return sorted(int(path.stem.rpartition("-")[2]) for path in folder.glob(f"rank-{rank}-step-*{kind}"))


def _name(rank: int, step: int, kind: str = DONE) -> str:
    return f"rank-{rank}-step-{step}{kind}"
