"""The global random number generators of a process: torch, CUDA, numpy and Python."""

import random
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor


class RandomState(NamedTuple):
    """The states of the process's global random number generators."""

    torch: Tensor
    numpy: Any
    python: Any
    cuda: list[Tensor]  # one per GPU; empty if CUDA is not in use

    @classmethod
    def fresh(cls) -> "RandomState":
        """The state in a new process. numpy's and Python's generators are seeded randomly there, so theirs are kept."""
        return cls(torch.Generator().get_state(), numpy.random.get_state(), random.getstate(), [])

    @classmethod
    def now(cls) -> "RandomState":
        used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        cuda = torch.cuda.get_rng_state_all() if used else []
        return cls(torch.get_rng_state(), numpy.random.get_state(), random.getstate(), cuda)

    def put(self) -> None:
        torch.set_rng_state(self.torch)
        numpy.random.set_state(self.numpy)
        random.setstate(self.python)
        if self.cuda:
            torch.cuda.set_rng_state_all(self.cuda)

    def plain(self) -> dict[str, Any]:
        """The states as plain tensors and numbers, for a checkpoint."""
        name, keys, *rest = self.numpy
        return {"torch": self.torch, "numpy": [name, keys.tolist(), *rest], "python": self.python, "cuda": self.cuda}

    @classmethod
    def read(cls, plain: Mapping[str, Any]) -> "RandomState":
        name, keys, *rest = plain["numpy"]
        return cls(plain["torch"], (name, keys, *rest), plain["python"], plain["cuda"])


def seed_of(*what: int) -> int:
    """A 32-bit seed derived from all arguments, by a hash; CPU generators use 32 bits."""
    return int.from_bytes(sha256(repr(what).encode()).digest()[:4])


def seed_all(seed: int) -> None:
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)
