"""What a checkpoint has to agree with before anything is loaded from it."""

import hashlib
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

VERSION = 5
WRONG = {
    "version": "this checkpoint is of another version",
    "method": "this checkpoint is of another method",
    "ranks": "the number of ranks has changed, and what each remembers with it; start afresh, without loading "
    "thinwire's state (the model and the optimizer load as always)",
    "rank": "this checkpoint is another rank's; what is left unsaid belongs to a rank, so save and load one per rank",
}


def check(saved: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """ValueError if a checkpoint is not of what is here: version, method, ranks, parameters, and the replica's own."""
    for name in WRONG:
        if saved.get(name) != here[name]:
            raise ValueError(f"{WRONG[name]} ({name}: {saved.get(name)!r} in the checkpoint, {here[name]!r} here)")
    missing = {"parameters", "meter", "itemized", "state", "in_flight"} - saved.keys()
    if missing:
        raise ValueError(f"this checkpoint lacks {', '.join(sorted(missing))}")
    for there, mine in zip_longest(saved["parameters"], here["parameters"], fillvalue="nothing"):
        if there != mine:
            raise ValueError(f"this checkpoint is of another model: it has {there}, here is {mine}")
    if saved.get("replica") != here.get("replica"):
        raise ValueError(
            "the parameters here are not those that this checkpoint was saved with. attach() copies rank 0's to all "
            "ranks: load the model after it, each rank its own, and then this"
        )


def digest(tensors: Iterable[Tensor]) -> str:
    """Tells whether tensors are the same to the bit."""
    found = hashlib.sha256()
    for x in tensors:
        found.update(x.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
