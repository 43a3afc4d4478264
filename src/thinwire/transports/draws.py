"""The generators of random numbers that a process has for all."""

import random
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor


class Draws(NamedTuple):
    """Where the process's generators of random numbers are."""

    torch: Tensor
    numpy: Any
    python: Any

    @classmethod
    def fresh(cls) -> "Draws":
        """As in a process that has just begun; Python's and numpy's begin anywhere there."""
        return cls(torch.Generator().get_state(), numpy.random.get_state(), random.getstate())

    @classmethod
    def now(cls) -> "Draws":
        return cls(torch.get_rng_state(), numpy.random.get_state(), random.getstate())

    def put(self) -> None:
        torch.set_rng_state(self.torch)
        numpy.random.set_state(self.numpy)
        random.setstate(self.python)


def seed_all(seed: int) -> None:
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)
