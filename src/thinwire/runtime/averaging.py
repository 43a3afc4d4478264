"""Copies of the model for evaluation and saving: the mean of all replicas, the leader's, the center, full-rank."""

from collections.abc import Iterable, Mapping
from itertools import chain
from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..core import Factoring, Rounds
from ..methods import notation_of
from ..strategies import Consensus, consensus, leading, training_peers
from ..strategies.ab_training import export, merged, smaller
from .replica_of import local
from .session import Session


def average_model(session: Session, model: nn.Module) -> nn.Module:
    """A copy with the mean of trained parameters and buffers; everything else is equal on all ranks."""

    def rounds(size: int) -> Rounds:
        strategy = session.strategy
        parameters = strategy.effective(session.replica)
        return consensus(parameters, _buffers(model), strategy.weight_of(session.state), training_peers(strategy, size))

    found: Consensus = session.run_collective("average()", rounds)
    session.meter.consensus = found.distance
    return _copy_with(session, model, found.means)


def leader_model(session: Session, model: nn.Module) -> nn.Module:
    """A copy with the parameters and buffers of the replica with the lowest loss."""

    def rounds(size: int) -> Rounds:
        loss = session.strategy.loss_of(session.state)
        assert loss is not None, "checked below"
        return leading(session.replica._replace(size=size), _buffers(model), loss)

    if session.strategy.loss_of(session.state) is None:
        raise ValueError(f"{notation_of(session.strategy)} has no leader: LeaderSGD(...) has")
    tensors = session.run_collective("leader()", rounds)
    return _copy_with(session, model, tensors)


def center_model(session: Session, model: nn.Module) -> nn.Module:
    """A copy with the center variable, which is equal on all ranks; the buffers are this rank's."""
    session.worker.wait()
    center = session.strategy.center(session.replica, session.state)
    if center is None:
        raise ValueError(f"{notation_of(session.strategy)} has no center: EASGD(...) has")
    return _copy_with(session, model, center)


@torch.no_grad()
def refresh_batchnorm(model: nn.Module, batches: Iterable[Any]) -> None:
    """Estimate the statistics of a model's batch norms again, as the plain mean over these batches.

    A batch is the model's input, a tuple or list that begins with it, or a dict of keyword arguments.
    """
    norms = [layer for layer in model.modules() if isinstance(layer, _BatchNorm) and layer.track_running_stats]
    if not norms:
        return
    remaining = iter(batches)
    try:
        first = next(remaining)
    except StopIteration:
        raise ValueError("there is no batch to estimate batch norm statistics from: the loader is empty") from None
    training, momenta = [(module, module.training) for module in model.modules()], [layer.momentum for layer in norms]
    model.eval()  # no dropout and the like
    try:
        for layer in norms:
            layer.reset_running_stats()
            layer.momentum = None  # a plain mean
            layer.train()
        for batch in chain([first], remaining):
            if isinstance(batch, Mapping):
                model(**batch)
            else:
                model(batch[0] if isinstance(batch, tuple | list) else batch)
    finally:
        for module, was_training in training:
            module.training = was_training
        for layer, momentum in zip(norms, momenta, strict=True):
            layer.momentum = momentum


def full_rank_model(session: Session, model: nn.Module) -> nn.Module:
    """A copy in full-rank layers with the weights that all ranks agree on, for strategies that factor layers."""
    factoring = _factoring(session)
    return _copy_with(session, model, session.run_collective("merge()", lambda size: factoring.agreed(session.replica)))


def export_low_rank(session: Session, model: nn.Module, path: str | PathLike[str]) -> dict[str, int]:
    """Write the agreed model with low-rank layers to a file, on rank 0; returns the rank of each of these layers."""
    agreed = full_rank_model(session, model)
    ranks = smaller(agreed, _factoring(session).ranks_of_layers(session.replica, agreed))
    if session.transport.rank == 0:
        export(agreed, ranks, path)
    return ranks


def _factoring(session: Session) -> Factoring:
    factoring = session.strategy.factoring
    if factoring is None:
        raise ValueError(f"{notation_of(session.strategy)} does not factor layers: ABTraining(...) does")
    return factoring


def _buffers(model: nn.Module) -> dict[str, Tensor]:
    return {f"buffer {name}": x for name, x in model.named_buffers()}


def _copy_with(session: Session, model: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
    """A copy of the model with these parameters and buffers, by their names in the replica."""
    replica = session.replica
    by_id = {id(replica.dtensors.get(name, p)): name for name, p in replica.parameters.items()}
    replica_names = {name: by_id.get(id(p), "") for name, p in model.named_parameters()}
    copy = merged(model)
    with torch.no_grad():
        for name, p in copy.named_parameters():
            _overwrite(local(p), tensors.get(replica_names[name]))
        for name, buffer in copy.named_buffers():
            _overwrite(buffer, tensors.get(f"buffer {name}"))
    return copy


def _overwrite(target: Tensor, source: Tensor | None) -> None:
    if source is not None:
        target.copy_(source)
