"""Models that are made of all replicas, or of one of them: copies, for evaluating or saving."""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from itertools import chain
from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..core import Rounds
from ..methods import notation_of
from ..strategies import (
    EASGD,
    ABTraining,
    Consensus,
    Independent,
    LeaderSGD,
    all_who_train,
    consensus,
    leading,
    workshop_of,
)
from ..strategies.ab_training import decomposed, export, merged, smaller
from .replica import local
from .session import Session


def averaged(session: Session, model: nn.Module) -> nn.Module:
    """With the mean of what is trained and of the buffers; the rest is alike on all ranks."""

    def talk(size: int) -> Rounds:
        strategy = session.strategy
        weight = strategy.weight_of(session.state) if isinstance(strategy, Independent) else 1.0
        return consensus(_effective(session), _buffers(model), weight, all_who_train(strategy, size))

    found: Consensus = session.asked("average()", talk)
    session.meter.consensus = found.distance
    return _copied(session, model, found.means)


def led(session: Session, model: nn.Module) -> nn.Module:
    """With what the replica with the lowest loss has."""
    strategy = session.strategy
    if not isinstance(strategy, LeaderSGD):
        raise ValueError(f"{notation_of(strategy)} has no leader: LeaderSGD(...) has")
    found = session.asked(
        "leader()",
        lambda size: leading(session.replica._replace(size=size), _buffers(model), strategy.loss_of(session.state)),
    )
    return _copied(session, model, found)


def centered(session: Session, model: nn.Module) -> nn.Module:
    """With what replicas are drawn to, which all ranks have; buffers are this rank's own."""
    strategy = session.strategy
    if not isinstance(strategy, EASGD):
        raise ValueError(f"{notation_of(strategy)} has no center: EASGD(...) has")
    session.worker.wait()
    return _copied(session, model, strategy.center(session.replica, session.state))


@torch.no_grad()
def refresh_batchnorm(model: nn.Module, batches: Iterable[Any]) -> None:
    """Estimate the statistics of a model's batch norms anew, as the plain mean over these batches.

    A batch is what the model takes, or a tuple or list whose first is, or a dict of its keyword arguments.
    """
    norms = [layer for layer in model.modules() if isinstance(layer, _BatchNorm) and layer.track_running_stats]
    if not norms:
        return
    found = iter(batches)
    try:
        first = next(found)
    except StopIteration:
        raise ValueError("there is no batch to estimate batch norms from: the loader is empty") from None
    training, momenta = [(layer, layer.training) for layer in model.modules()], [layer.momentum for layer in norms]
    model.eval()  # dropout and the like stay out of it
    try:
        for layer in norms:
            layer.reset_running_stats()
            layer.momentum = None  # a plain mean
            layer.train()
        for batch in chain([first], found):
            if isinstance(batch, Mapping):
                model(**batch)
            else:
                model(batch[0] if isinstance(batch, tuple | list) else batch)
    finally:
        for part, was in training:
            part.training = was
        for layer, momentum in zip(norms, momenta, strict=True):
            layer.momentum = momentum


def whole(session: Session, model: nn.Module) -> nn.Module:
    """With what all agree on, in plain layers, for strategies that factor them."""
    strategy = session.strategy
    if not isinstance(strategy, ABTraining):
        raise ValueError(f"{notation_of(strategy)} does not factor layers: ABTraining(...) does")
    return _copied(session, model, session.asked("merge()", lambda size: strategy.agreed(session.replica)))


def exported(session: Session, model: nn.Module, path: str | PathLike[str]) -> dict[str, int]:
    """Write that with thin layers, on rank 0. Returns their ranks."""
    agreed, strategy = whole(session, model), session.strategy
    assert isinstance(strategy, ABTraining), "it has been seen to"
    ranks = {}
    for bench in workshop_of(session.replica).benches:
        weight = agreed.get_parameter(bench.names["weight"]).detach().flatten(1)
        if bench.rank is None:
            ranks[bench.name] = decomposed(weight, strategy.cutoff)[0].shape[1]
        else:  # a mean of products has a higher rank than each
            ranks[bench.name] = decomposed(weight)[0].shape[1] if strategy.sync == "full" else bench.rank
    kept = smaller(agreed, ranks)
    if session.transport.rank == 0:
        export(agreed, kept, path)
    return kept


def _effective(session: Session) -> Mapping[str, Tensor]:
    strategy = session.strategy
    return strategy.effective(session.replica) if isinstance(strategy, Independent) else session.replica.parameters


def _buffers(model: nn.Module) -> dict[str, Tensor]:
    return {f"buffer {name}": x for name, x in model.named_buffers()}


def _copied(session: Session, model: nn.Module, found: Mapping[str, Tensor]) -> nn.Module:
    replica = session.replica
    names = {id(replica.wholes.get(name, p)): name for name, p in replica.parameters.items()}
    named = {there: names.get(id(here), "") for there, here in model.named_parameters()}
    copy = deepcopy(model) if session.replica.factored_model is None else merged(model)
    with torch.no_grad():
        for name, p in copy.named_parameters():
            _put(local(p), found.get(named[name]))
        for name, buffer in copy.named_buffers():
            _put(buffer, found.get(f"buffer {name}"))
    return copy


def _put(there: Tensor, what: Tensor | None) -> None:
    if what is not None:
        there.copy_(what)
