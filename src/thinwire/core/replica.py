"""One rank's copy of the model, as a strategy sees it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor


class Replica(NamedTuple):
    """One rank's copy of the model, as a strategy sees it."""

    parameters: Mapping[str, Tensor]
    kinds: Mapping[str, str]
    rank: int
    size: int
    hosts: tuple[str, ...] = ()  # the machine of each rank; empty: all are on one
    loss: float | None = None  # of this step, if it was told
    rate: float | None = None  # of learning, if it was told
    factored_model: Any = None  # what a strategy that changes the model itself works with
    ends: Mapping[str, str] = {}  # the model's "first" matrix and its "last"; parts of a model have these, too
    wholes: Mapping[
        str, Any
    ] = {}  # the parameters of which only this rank's part is talked about, as the model has them
