"""Nested structures: tensors and numbers in dicts, lists and tuples."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

Nest = Any  # a tensor, a number, None, or a dict, list or tuple of nests


def leaves(nest: Nest) -> list[Tensor]:
    """All tensors and numbers, as tensors. The order depends on the structure only."""
    return [x if isinstance(x, Tensor) else _number(x) for x in _walk(nest)]


def rebuilt(nest: Nest, values: Iterator[Any]) -> Nest:
    """A nest of the same structure with new leaves, given in the order of `leaves`."""
    if nest is None:
        return None
    if isinstance(nest, dict):
        inner = {key: rebuilt(nest[key], values) for key in _ordered(nest)}
        return {key: inner[key] for key in nest}
    if isinstance(nest, tuple) and hasattr(nest, "_fields"):
        return type(nest)(*(rebuilt(inner, values) for inner in nest))
    if isinstance(nest, list | tuple):
        return type(nest)(rebuilt(inner, values) for inner in nest)
    return next(values)


def mapped(act: Callable[[Tensor], Any], nest: Nest) -> Nest:
    """A nest of the same structure, with the function applied to each leaf."""
    return rebuilt(nest, (act(x) for x in leaves(nest)))


def like_numbers(nest: Nest, result: Nest) -> Nest:
    """The result, with leaves converted to Python numbers where `nest` has Python numbers."""
    pairs = zip(_walk(nest), _walk(result), strict=True)
    return rebuilt(result, (new if isinstance(old, Tensor) else new.item() for old, new in pairs))


def detached(nest: Any) -> Any:
    """Detach all tensors from the autograd graph; leave everything else unchanged."""
    if isinstance(nest, Tensor):
        return nest.detach()
    if isinstance(nest, dict):
        return {key: detached(inner) for key, inner in nest.items()}
    if isinstance(nest, tuple) and hasattr(nest, "_fields"):
        return type(nest)(*map(detached, nest))
    return type(nest)(map(detached, nest)) if isinstance(nest, list | tuple) else nest


def description(nest: Nest) -> str:
    """The structure, dtypes and shapes as text: what all replicas must agree on."""
    if nest is None:
        return "None"
    if isinstance(nest, dict):
        return "{" + ", ".join(f"{key!r}: {description(nest[key])}" for key in _ordered(nest)) + "}"
    if isinstance(nest, list | tuple):
        inner = ", ".join(description(x) for x in nest)
        return f"[{inner}]" if isinstance(nest, list) else f"({inner})"
    if isinstance(nest, Tensor):
        return f"{str(nest.dtype).removeprefix('torch.')}{list(nest.shape)}"
    return type(nest).__name__


def _walk(nest: Nest) -> Iterator[Any]:
    if nest is None:
        return
    if isinstance(nest, dict):
        for key in _ordered(nest):
            yield from _walk(nest[key])
    elif isinstance(nest, list | tuple):
        for inner in nest:
            yield from _walk(inner)
    elif isinstance(nest, Tensor | bool | int | float):
        yield nest
    else:
        raise TypeError(
            f"replicas exchange tensors and numbers, in dicts, lists and tuples, not {type(nest).__name__}: {nest!r}"
        )


def _ordered(nest: dict[Any, Any]) -> list[Any]:
    return sorted(nest, key=lambda key: (type(key).__name__, repr(key)))


def _number(x: float) -> Tensor:
    kinds = {bool: torch.bool, int: torch.int64}
    return torch.tensor(x, dtype=kinds.get(type(x), torch.float64))
