"""Reads the gradients that a run saved (`thinwire train --capture N`), one at a time."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import torch
from torch import Tensor

FOLDER, INDEX = "gradients", "index.json"  # in a run's folder, and in that folder
SCHEMA = 1


def file_of(step: int) -> str:
    return f"step-{step:06d}.npz"


@dataclass(frozen=True)
class Captured:
    """The gradients of rank 0 at some steps of a run, before the exchange."""

    folder: Path
    workload: str
    method: str
    seed: int
    batch: int  # examples over which a gradient is the mean
    length: int  # steps of the run
    steps: tuple[int, ...]  # that have gradients; the first step of a run is 1
    kinds: Mapping[str, str]  # the kind of layer of each parameter
    shapes: Mapping[str, tuple[int, ...]]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.kinds)

    def gradient(self, step: int, name: str) -> Tensor:
        """One parameter's gradient in float32, read from disk on every call."""
        if step not in self.steps:
            raise ValueError(
                f"{self.folder} has no gradients of step {step}, only of {', '.join(map(str, self.steps))}"
            )
        if name not in self.kinds:
            nearest = get_close_matches(name, self.kinds, n=1)
            hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
            raise ValueError(f"{self.folder} has no parameter {name!r}{hint}")
        path = self.folder / file_of(step)
        try:
            # np.load would leave a damaged file open.
            with ZipFile(path) as stored, stored.open(f"{name}.npy") as member:
                gradient = torch.from_numpy(np.lib.format.read_array(member, allow_pickle=False))
        except Exception as error:  # zipfile and numpy raise many types of errors for damaged files
            raise ValueError(f"{path} is damaged: {error}") from None
        if gradient.dtype != torch.float32 or tuple(gradient.shape) != self.shapes[name]:
            raise ValueError(f"{path} is damaged: in it, {name} is {gradient.dtype} {tuple(gradient.shape)}")
        return gradient


def read(folder: Path) -> Captured:
    """The gradients in a run's folder."""
    inside = folder / FOLDER
    index = inside / INDEX
    if not index.exists():
        raise ValueError(f"{folder} holds no gradients: `thinwire train --capture N` writes them")
    try:
        captured = _captured(inside, json.loads(index.read_text()))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{index} cannot be read as an index of gradients: {error!r}") from None
    missing = [file_of(step) for step in captured.steps if not (inside / file_of(step)).exists()]
    if missing:
        raise ValueError(f"{inside} is damaged: {missing[0]} is missing")
    return captured


def _captured(folder: Path, index: dict[str, Any]) -> Captured:
    if index["schema"] != SCHEMA:
        raise ValueError(f"schema {index['schema']}, not {SCHEMA}")
    return Captured(
        folder=folder,
        workload=index["workload"],
        method=index["method"],
        seed=index["seed"],
        batch=index["batch"],
        length=index["length"],
        steps=tuple(index["steps"]),
        kinds={parameter["name"]: parameter["kind"] for parameter in index["parameters"]},
        shapes={parameter["name"]: tuple(parameter["shape"]) for parameter in index["parameters"]},
    )
