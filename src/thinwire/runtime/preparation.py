"""Prepares a model for a strategy."""

from collections.abc import Iterable

from torch import Tensor, nn
from torch.optim import Optimizer

from ..core import Replica, Strategy
from .replica_of import replica_of


def prepared(
    strategy: Strategy,
    model: nn.Module,
    optimizer: Optimizer | None = None,
    only: Iterable[Tensor] | None = None,
    rank: int = 0,
    size: int = 1,
    hosts: tuple[str, ...] = (),
) -> Replica:
    """The replica of a model, after the strategy has replaced the layers that it factors, if any."""
    return strategy.prepare(replica_of(model, only, rank, size, hosts), model, optimizer)
