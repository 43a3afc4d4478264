"""Models that are made of all replicas, or of one of them: copies, for evaluating or saving."""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from .core import Talk
from .methods import notation_of
from .session import Session
from .strategies import Consensus, Elastic, Independent, Leader, consensus, leading


def averaged(session: Session, model: nn.Module) -> nn.Module:
    """With the mean of what is trained and of the buffers; the rest is alike on all ranks."""

    def talk(size: int) -> Talk:
        strategy = session.strategy
        weight = strategy.weight_of(session.state) if isinstance(strategy, Independent) else 1.0
        return consensus(session.replica.parameters, _buffers(model), weight, size)

    found: Consensus = session.asked(talk)
    session.meter.consensus = found.distance
    return _copied(session, model, found.means)


def led(session: Session, model: nn.Module) -> nn.Module:
    """With what the replica with the lowest loss has."""
    strategy = session.strategy
    if not isinstance(strategy, Leader):
        raise ValueError(f"{notation_of(strategy)} has no leader: Leader(...) has")
    found = session.asked(
        lambda size: leading(session.replica._replace(size=size), _buffers(model), strategy.loss_of(session.state))
    )
    return _copied(session, model, found)


def centred(session: Session, model: nn.Module) -> nn.Module:
    """With what replicas are drawn to, which all ranks have; buffers are this rank's own."""
    strategy = session.strategy
    if not isinstance(strategy, Elastic):
        raise ValueError(f"{notation_of(strategy)} has no centre: Elastic(...) has")
    session.worker.wait()
    return _copied(session, model, strategy.centre(session.replica, session.state))


@torch.no_grad()
def refresh_batchnorm(model: nn.Module, batches: Iterable[Any]) -> None:
    """Estimate the statistics of a model's batch norms anew, as the plain mean over these batches.

    A batch is what the model takes, or a tuple or list whose first is, or a dict of its keyword arguments.
    """
    norms = [layer for layer in model.modules() if isinstance(layer, _NormBase) and layer.track_running_stats]
    if not norms:
        return
    training, momenta = [(layer, layer.training) for layer in model.modules()], [layer.momentum for layer in norms]
    model.eval()  # dropout and the like stay out of it
    count = 0
    try:
        for layer in norms:
            layer.reset_running_stats()
            layer.momentum = None  # a plain mean
            layer.train()
        for batch in batches:
            count += 1
            if isinstance(batch, Mapping):
                model(**batch)
            else:
                model(batch[0] if isinstance(batch, tuple | list) else batch)
    finally:
        for part, was in training:
            part.training = was
        for layer, momentum in zip(norms, momenta, strict=True):
            layer.momentum = momentum
    if not count:
        raise ValueError("there is no batch to estimate batch norms from: the loader is empty")


def _buffers(model: nn.Module) -> dict[str, Tensor]:
    return {f"buffer {name}": x for name, x in model.named_buffers()}


def _copied(session: Session, model: nn.Module, found: Mapping[str, Tensor]) -> nn.Module:
    names = {id(p): name for name, p in session.replica.parameters.items()}
    copy = deepcopy(model)
    with torch.no_grad():
        for (_, here), (_, there) in zip(model.named_parameters(), copy.named_parameters(), strict=True):
            _put(there, found.get(names.get(id(here), "")))
        for name, buffer in copy.named_buffers():
            _put(buffer, found.get(f"buffer {name}"))
    return copy


def _put(there: Tensor, what: Tensor | None) -> None:
    if what is not None:
        there.copy_(what)
