"""Checkpoint files: each rank saves everything that it needs to resume, in its own file.

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
PART, READY, DONE = ".part", ".ready", ".pt"  # being written; complete; complete on all ranks


class Kept(Protocol):
    """An object that can be saved: a module, an optimizer, a schedule, a loader."""

    def state_dict(self) -> Any: ...
    def load_state_dict(self, state_dict: Any, /) -> Any: ...


def save(folder: Path, rank: int, step: int, state: Mapping[str, Any]) -> None:
    """Write a rank's file as READY; call `finish` when all ranks have written theirs."""
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / _name(rank, step, PART)
    torch.save({"format": FORMAT, "step": step, **state}, part)
    _check_readable(part, state["kept"])
    os.replace(part, part.with_suffix(READY))  # atomic: a full disk or a kill leaves a complete file or none


def finish(folder: Path, rank: int, step: int, keep: int) -> None:
    """Rename this step's file to DONE, as all ranks have written theirs; delete all but the newest `keep`."""
    os.replace(folder / _name(rank, step, READY), folder / _name(rank, step))
    for old in _steps(folder, rank, DONE)[:-keep]:
        (folder / _name(rank, old)).unlink()
    for stale in _steps(folder, rank, READY):
        (folder / _name(rank, stale, READY)).unlink()


def _check_readable(part: Path, kept: Mapping[str, Any]) -> None:
    """ValueError if the file cannot be loaded with weights_only=True, when saving and not only when resuming."""
    try:
        torch.load(part, weights_only=True)
    except Exception as error:
        if type(error).__name__ != "UnpicklingError":
            raise
        part.unlink()
        wrong = next((name for name, state in kept.items() if not _is_plain(state)), "a saved object")
        raise ValueError(
            f"the state of {wrong!r} cannot be saved: it must consist of tensors, numbers and strings, in dicts, "
            "lists and tuples"
        ) from None


def _is_plain(state: Any) -> bool:
    if isinstance(state, dict):
        return all(map(_is_plain, (*state, *state.values())))
    if isinstance(state, list | tuple):
        return all(map(_is_plain, state))
    return state is None or type(state) in (bool, int, float, str, bytes) or isinstance(state, Tensor)


def newest(folder: Path, transport: Transport) -> int | None:
    """The last step of which all ranks have a file; None if there is none, or only an incomplete first one."""
    done, ready = (",".join(map(str, _steps(folder, transport.rank, kind))) for kind in (DONE, READY))
    by_rank = [text.decode().split(";") for text in transport.gather(f"{done};{ready}".encode())]
    finished = [_numbers(done) for done, _ in by_rank]
    available = [_numbers(done) | _numbers(ready) for done, ready in by_rank]
    common = set.intersection(*available)
    if not common and any(finished):
        without = ", ".join(str(r) for r, steps in enumerate(available) if not steps)
        raise ValueError(
            f"no step has checkpoints of all {transport.size} ranks in {folder}"
            f"{f': rank {without} has none' if without else ''}. "
            "Was it written by another number of ranks, or on other machines?"
        )
    return max(common, default=None)


def _numbers(text: str) -> set[int]:
    return {int(number) for number in text.split(",") if number.strip()}


def load(folder: Path, rank: int, step: int) -> dict[str, Any]:
    if not (folder / _name(rank, step)).exists():  # killed after all ranks had written theirs, before the rename
        os.replace(folder / _name(rank, step, READY), folder / _name(rank, step))
    state: dict[str, Any] = torch.load(folder / _name(rank, step), map_location="cpu", weights_only=True)
    if state["format"] != FORMAT:
        raise ValueError(
            f"{folder} was written in checkpoint format {state['format']}, but this version reads format {FORMAT}"
        )
    return state


def saved(kept: Kept) -> Any:
    """The state to save. DTensors are replaced by this process's local shards."""
    return _each(kept.state_dict(), local)


def load_into(kept: Kept, state: Any) -> None:
    """Restore a saved state."""
    if isinstance(kept, Optimizer):
        parameters = [p for group in kept.param_groups for p in group["params"]]
        state = state | {"state": {i: _sharded_like(parameters[i], saved) for i, saved in state["state"].items()}}
    else:
        current = kept.state_dict()
        if isinstance(current, dict) and isinstance(state, dict):
            state = {name: _sharded_like(current.get(name), x) for name, x in state.items()}
    kept.load_state_dict(state)


def _sharded_like(current: Any, state: Any) -> Any:
    """Local shards as DTensors again, with the mesh and placements of `current`."""
    if not is_dtensor(current):
        return state
    shape = local(current).shape
    layout = current.device_mesh, current.placements
    return _each(state, lambda x: type(current.data).from_local(x, *layout) if x.shape == shape else x)


def _each(state: Any, act: Callable[[Tensor], Tensor]) -> Any:
    """A state with the function applied to each of its tensors."""
    if isinstance(state, Tensor):
        return act(state)
    if isinstance(state, dict):
        return {key: _each(inner, act) for key, inner in state.items()}
    if isinstance(state, list | tuple) and not hasattr(state, "_fields"):
        return type(state)(_each(inner, act) for inner in state)
    return state


def _steps(folder: Path, rank: int, kind: str) -> list[int]:
    """The steps of which the rank has a file of this kind, in order."""
    return sorted(int(path.stem.rpartition("-")[2]) for path in folder.glob(f"rank-{rank}-step-*{kind}"))


def _name(rank: int, step: int, kind: str = DONE) -> str:
    return f"rank-{rank}-step-{step}{kind}"
