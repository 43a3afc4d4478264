"""Everything that a replica needs to go on where it was, in a file of its own."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..replica import is_split, local
from ..transports import Transport

FORMAT = 2


class Kept(Protocol):
    """What can be saved: a module, an optimizer, a schedule, a loader."""

    def state_dict(self) -> Any: ...
    def load_state_dict(self, state_dict: Any, /) -> Any: ...


def save(folder: Path, rank: int, step: int, state: Mapping[str, Any]) -> None:
    """Write a replica's file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _name(rank, step)
    part = path.with_suffix(".part")
    torch.save({"format": FORMAT, "step": step, **state}, part)
    _check_readable(part, state["kept"])
    os.replace(part, path)  # a full disk or a kill leaves a whole file or none


def let_go(folder: Path, rank: int, keep: int) -> None:
    """Of all but the newest: when all ranks have written theirs."""
    for old in _steps(folder, rank)[:-keep]:
        (folder / _name(rank, old)).unlink()


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
    """The last step that all ranks have a file of; None if nobody has one."""
    here = ",".join(map(str, _steps(folder, transport.rank)))
    there = [{int(n) for n in told.decode().split(",") if n.strip()} for told in transport.gather(here.encode())]
    common = set.intersection(*there)
    if not common and any(there):
        without = ", ".join(str(r) for r, steps in enumerate(there) if not steps)
        raise ValueError(
            f"there is no step of which all {transport.size} ranks have a checkpoint in {folder}"
            f"{f': rank {without} has none' if without else ''}. Was it written by as many, or on other machines?"
        )
    return max(common, default=None)


def load(folder: Path, rank: int, step: int) -> dict[str, Any]:
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
    if not is_split(whole):
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


def _steps(folder: Path, rank: int) -> list[int]:
    """Of which there is a file, in order."""
    return sorted(int(path.stem.rpartition("-")[2]) for path in folder.glob(f"rank-{rank}-step-*.pt"))


def _name(rank: int, step: int) -> str:
    return f"rank-{rank}-step-{step}.pt"
