"""A file with a low-rank model, which a fresh model of the user's class becomes by loading it."""

from collections.abc import Mapping
from os import PathLike

import torch
from torch import nn

from .plain_layers import can_be_thin, thin

VERSION = 1


def export(model: nn.Module, ranks: Mapping[str, int], path: str | PathLike[str]) -> None:
    """Write a plain model, with these layers in thin form."""
    torch.save({"version": VERSION, "ranks": dict(ranks), "state": thin(model, ranks).state_dict()}, path)


def smaller(model: nn.Module, ranks: Mapping[str, int]) -> dict[str, int]:
    """Those of these ranks at which two thin layers are smaller than the one."""
    return {name: rank for name, rank in ranks.items() if _pays(model.get_submodule(name), rank)}


def load_low_rank(model: nn.Module, path: str | PathLike[str]) -> nn.Module:
    """What `handle.export(path)` wrote, as a copy of a plain model of the same class: it has torch's own layers."""
    saved = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(saved, dict) or saved.get("version") != VERSION:
        raise ValueError(f"{path} was not written by handle.export()")
    try:
        made = thin(model, saved["ranks"])
        made.load_state_dict(saved["state"])
    except (AttributeError, AssertionError, RuntimeError) as error:
        raise ValueError(f"{path} is of another model: {error}") from None
    return made


def _pays(layer: nn.Module, rank: int) -> bool:
    if not can_be_thin(layer):
        return False
    rows, columns = layer.get_parameter("weight").flatten(1).shape
    return rank * (rows + columns) < rows * columns
