"""Checks that a checkpoint fits before anything is loaded from it."""

import hashlib
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

VERSION = 6
WRONG = {
    "version": "this checkpoint has another format version",
    "method": "this checkpoint was saved with another method",
    "ranks": "the number of ranks has changed, and the state of each rank depends on it: continue without loading "
    "thinwire's state (load the model and the optimizer as usual)",
    "rank": "this checkpoint is another rank's; a residual belongs to a rank, so save and load one file per rank",
}


def check(saved: Mapping[str, Any], current: Mapping[str, Any]) -> None:
    """ValueError if the version, method, ranks, parameters or replica of a checkpoint are not those of this session."""
    for name in WRONG:
        if saved.get(name) != current[name]:
            raise ValueError(f"{WRONG[name]} ({name}: {saved.get(name)!r} in the checkpoint, {current[name]!r} here)")
    missing = {"parameters", "meter", "itemized", "state", "in_flight"} - saved.keys()
    if missing:
        raise ValueError(f"this checkpoint lacks {', '.join(sorted(missing))}")
    for theirs, own in zip_longest(saved["parameters"], current["parameters"], fillvalue="nothing"):
        if theirs != own:
            raise ValueError(f"this checkpoint is of another model: it has {theirs}, and this model has {own}")
    if saved.get("replica") != current.get("replica"):
        raise ValueError(
            "the model's parameters are not those that this checkpoint was saved with. attach() copies the parameters "
            "of rank 0 to all ranks: afterwards, load each rank's own model, and then this checkpoint"
        )


def digest(tensors: Iterable[Tensor]) -> str:
    """A hash that is equal if tensors are equal to the bit."""
    result = hashlib.sha256()
    for x in tensors:
        result.update(x.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return result.hexdigest()
