"""Files with a low-rank model, which load into a fresh model of the user's class."""

from collections.abc import Mapping
from os import PathLike

import torch
from torch import nn

from .plain_layers import can_be_low_rank, thin

VERSION = 1


def export(model: nn.Module, ranks: Mapping[str, int], path: str | PathLike[str]) -> None:
    """Save a plain model, with these layers replaced by low-rank ones."""
    torch.save({"version": VERSION, "ranks": dict(ranks), "state": thin(model, ranks).state_dict()}, path)


def smaller(model: nn.Module, ranks: Mapping[str, int]) -> dict[str, int]:
    """The ranks at which two low-rank layers have fewer parameters than the full one."""
    return {name: rank for name, rank in ranks.items() if _pays(model.get_submodule(name), rank)}


def load_low_rank(model: nn.Module, path: str | PathLike[str]) -> nn.Module:
    """Load a file of `handle.export(path)` into a copy of a plain model of the same class, made of torch's layers."""
    saved = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(saved, dict) or saved.get("version") != VERSION:
        raise ValueError(f"{path} was not written by handle.export()")
    try:
        loaded = thin(model, saved["ranks"])
        loaded.load_state_dict(saved["state"])
    except (AttributeError, AssertionError, RuntimeError) as error:
        raise ValueError(f"{path} does not fit this model: {error}") from None
    return loaded


def _pays(layer: nn.Module, rank: int) -> bool:
    if not can_be_low_rank(layer):
        return False
    rows, columns = layer.get_parameter("weight").flatten(1).shape
    return rank * (rows + columns) < rows * columns
