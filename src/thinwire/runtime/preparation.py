"""A model, made ready for a strategy."""

from collections.abc import Iterable

from torch import Tensor, nn
from torch.optim import Optimizer

from ..core import Replica, Strategy
from ..strategies import ABTraining
from ..strategies.ab_training import FactoredModel
from .replica import replica_of


def prepared(
    strategy: Strategy,
    model: nn.Module,
    optimizer: Optimizer | None = None,
    only: Iterable[Tensor] | None = None,
    rank: int = 0,
    size: int = 1,
    hosts: tuple[str, ...] = (),
) -> Replica:
    """As `replica_of`, with the layers changed for strategies that need others."""
    replica = replica_of(model, only, rank, size, hosts)
    if not isinstance(strategy, ABTraining):
        return replica
    if replica.wholes:
        raise ValueError(f"{strategy!r} factors layers, and {next(iter(replica.wholes))} is split over processes")
    if optimizer is None:
        raise ValueError(f"{strategy!r} needs the optimizer, whose parameters it changes")
    factored_model = FactoredModel(model, optimizer, strategy.keep, strategy.ends)
    parameters, kinds = dict(replica.parameters), dict(replica.kinds)
    for bench in factored_model.benches:
        parameters |= {bench.names["a"]: bench.a, bench.names["b"]: bench.b}
        kinds |= dict.fromkeys(bench.names.values(), kinds[bench.names["weight"]])
    return replica._replace(parameters=parameters, kinds=kinds, factored_model=factored_model)
