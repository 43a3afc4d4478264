"""The generators of random numbers that a process has for all."""

import random
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor


class RandomState(NamedTuple):
    """Where the process's generators of random numbers are."""

    torch: Tensor
    numpy: Any
    python: Any
    cuda: list[Tensor]  # of each GPU, if there are any in use

    @classmethod
    def fresh(cls) -> "RandomState":
        """As in a process that has just begun; Python's and numpy's begin anywhere there."""
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
        """As plain tensors and numbers."""
        name, keys, *rest = self.numpy
        return {"torch": self.torch, "numpy": [name, keys.tolist(), *rest], "python": self.python, "cuda": self.cuda}

    @classmethod
    def read(cls, plain: Mapping[str, Any]) -> "RandomState":
        name, keys, *rest = plain["numpy"]
        return cls(plain["torch"], (name, keys, *rest), plain["python"], plain["cuda"])


def seed_of(*what: int) -> int:
    """A seed that differs if anything differs, in as many bits as generators on the CPU use."""
    return int.from_bytes(sha256(repr(what).encode()).digest()[:4])


def seed_all(seed: int) -> None:
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)
