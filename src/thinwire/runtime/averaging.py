"""Models that are made of all replicas, or of one of them: copies, for evaluating or saving."""

from collections.abc import Iterable, Mapping
from itertools import chain
from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..core import Factoring, Rounds
from ..methods import notation_of
from ..strategies import Consensus, all_who_train, consensus, leading
from ..strategies.ab_training import export, merged, smaller
from .replica_of import local
from .session import Session


def averaged(session: Session, model: nn.Module) -> nn.Module:
    """With the mean of what is trained and of the buffers; the rest is alike on all ranks."""

    def talk(size: int) -> Rounds:
        strategy = session.strategy
        means = strategy.effective(session.replica)
        return consensus(means, _buffers(model), strategy.weight_of(session.state), all_who_train(strategy, size))

    found: Consensus = session.asked("average()", talk)
    session.meter.consensus = found.distance
    return _copied(session, model, found.means)


def led(session: Session, model: nn.Module) -> nn.Module:
    """With what the replica with the lowest loss has."""

    def rounds(size: int) -> Rounds:
        loss = session.strategy.loss_of(session.state)
        assert loss is not None, "there is a leader"
        return leading(session.replica._replace(size=size), _buffers(model), loss)

    if session.strategy.loss_of(session.state) is None:
        raise ValueError(f"{notation_of(session.strategy)} has no leader: LeaderSGD(...) has")
    found = session.asked("leader()", rounds)
    return _copied(session, model, found)


def centered(session: Session, model: nn.Module) -> nn.Module:
    """With what replicas are drawn to, which all ranks have; buffers are this rank's own."""
    session.worker.wait()
    center = session.strategy.center(session.replica, session.state)
    if center is None:
        raise ValueError(f"{notation_of(session.strategy)} has no center: EASGD(...) has")
    return _copied(session, model, center)


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
    """A copy with the full-rank weights that all groups agree on, in torch's own layers."""
    factoring = _factoring(session)
    return _copied(session, model, session.asked("merge()", lambda size: factoring.agreed(session.replica)))


def exported(session: Session, model: nn.Module, path: str | PathLike[str]) -> dict[str, int]:
    """Write that copy with low-rank layers, on rank 0. Returns their ranks."""
    agreed = whole(session, model)
    kept = smaller(agreed, _factoring(session).ranks_of_layers(session.replica, agreed))
    if session.transport.rank == 0:
        export(agreed, kept, path)
    return kept


def _factoring(session: Session) -> Factoring:
    factoring = session.strategy.factoring
    if factoring is None or not session.factored():
        raise ValueError(f"{notation_of(session.strategy)} does not factor layers: ABTraining(...) does")
    return factoring


def _buffers(model: nn.Module) -> dict[str, Tensor]:
    return {f"buffer {name}": x for name, x in model.named_buffers()}


def _copied(session: Session, model: nn.Module, found: Mapping[str, Tensor]) -> nn.Module:
    replica = session.replica
    names = {id(replica.dtensors.get(name, p)): name for name, p in replica.parameters.items()}
    named = {there: names.get(id(here), "") for there, here in model.named_parameters()}
    copy = merged(model)
    with torch.no_grad():
        for name, p in copy.named_parameters():
            _put(local(p), found.get(named[name]))
        for name, buffer in copy.named_buffers():
            _put(buffer, found.get(f"buffer {name}"))
    return copy


def _put(there: Tensor, what: Tensor | None) -> None:
    if what is not None:
        there.copy_(what)
