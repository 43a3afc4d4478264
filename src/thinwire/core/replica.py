"""One rank's copy of the model, as a strategy sees it."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from torch import Tensor

from .lazy import outline


class Parameter(NamedTuple):
    """A description of a parameter, known before it has a gradient."""

    name: str
    kind: str  # of the layer that owns it: conv, dense, recurrent, embedding, attention, norm, other
    like: Tensor  # an outline
    ranks: tuple[int, ...] = (0,)  # ranks that train it
    end: str = ""  # "first" or "last" of the model's matrices
    sharded: bool = False  # the ranks of a replica hold different shards of it
    server: int | None = None  # the rank that all messages about it go through


class Replica(NamedTuple):
    """One rank's copy of the model, as a strategy sees it."""

    parameters: Mapping[str, Tensor]
    descriptions: Mapping[str, Parameter]  # of each
    rank: int
    size: int
    hosts: tuple[str, ...] = ()  # the machine of each rank; empty: all ranks are on one
    loss: float | None = None  # of this step, if it was reported
    rate: float | None = None  # the learning rate, if it was set
    prepared: Any = None  # what `Strategy.prepare` made of the model, if it changes models
    dtensors: Mapping[str, Any] = {}  # the model's DTensors, by name; `parameters` has this rank's local tensors

    @classmethod
    def of(cls, parameters: Mapping[str, Tensor], kind: str = "other", rank: int = 0, size: int = 1) -> Self:
        """A replica of bare tensors, all of layers of one kind."""
        return cls(parameters, {name: Parameter(name, kind, outline(p)) for name, p in parameters.items()}, rank, size)

    @property
    def kinds(self) -> dict[str, str]:
        """The kind of layer that owns each parameter."""
        return {name: description.kind for name, description in self.descriptions.items()}
