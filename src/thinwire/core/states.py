"""Reducers' states, as plain tensors and numbers that a checkpoint can hold, and back."""

from typing import Any

import torch
from torch import Tensor

from .lazy import DeferredDifference


class Spare:
    """A buffer that a reducer writes its next state into: the last state stays valid, and no step allocates memory.

    It is not part of the state: a checkpoint leaves it out.
    """

    def __init__(self, buffer: Tensor | None = None) -> None:
        self.buffer = buffer

    def like(self, x: Tensor) -> Tensor:
        if self.buffer is None:
            self.buffer = torch.empty_like(x, memory_format=torch.contiguous_format)
        return self.buffer


def plain(state: Any) -> Any:
    """A copy of a state made of tensors, numbers, None and tuples only."""
    match state:
        case Tensor():
            return state.detach().clone()
        case DeferredDifference():
            return plain(state.dense())
        case Spare():
            return None
        case tuple():
            return tuple(plain(part) for part in state)
        case dict():
            return {name: plain(part) for name, part in state.items()}
        case bool() | int() | float() | None:
            return state
    raise TypeError(f"a state holds tensors, numbers and tuples, not {type(state).__name__}")


def restored(like: Any, saved: Any) -> Any:
    """The state that `plain` copied, in the form of `like`; ValueError where the two do not fit."""
    match like:
        case Tensor():
            if not isinstance(saved, Tensor):
                raise ValueError(f"a tensor was expected, the checkpoint has {saved!r}")
            # A tensor that is empty at first takes its shape from what is received.
            if saved.dtype != like.dtype or (like.numel() and saved.shape != like.shape):
                here, there = (f"{x.dtype} {tuple(x.shape)}" for x in (like, saved))
                raise ValueError(f"{here} was expected, the checkpoint has {there}")
            return saved.detach().clone().to(like.device)
        case DeferredDifference():
            return DeferredDifference(restored(like.total, saved))
        case Spare():
            return Spare()
        case dict():
            if not isinstance(saved, dict):
                raise ValueError(f"states by name were expected, the checkpoint has {saved!r}")
            if saved.keys() != like.keys():
                missing, extra = sorted(like.keys() - set(saved)), sorted(set(saved) - like.keys())
                raise ValueError(f"the checkpoint lacks {missing[:3]} and has {extra[:3]} too many")
            return {name: _named(name, part, saved[name]) for name, part in like.items()}
        case tuple():
            if not isinstance(saved, tuple | list) or len(saved) != len(like):
                raise ValueError(f"{len(like)} values were expected, the checkpoint has {saved!r}")
            parts = [restored(part, value) for part, value in zip(like, saved, strict=True)]
            return type(like)(*parts) if hasattr(like, "_fields") else tuple(parts)
        case None if isinstance(saved, Tensor | dict):  # tensors that are there at times only
            return plain(saved)
    if type(saved) is not type(like):
        raise ValueError(f"{type(like).__name__} was expected, the checkpoint has {saved!r}")
    return saved


def _named(name: str, like: Any, saved: Any) -> Any:
    try:
        return restored(like, saved)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
