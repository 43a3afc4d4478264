"""The mean of all replicas, and how far they are from it."""

from collections.abc import Generator, Mapping
from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor

from ..codecs import Identity
from ..core import Message, Peers, Reply, Rounds, lockstep
from ..core.precision import working


class Consensus(NamedTuple):
    means: dict[str, Tensor]  # of parameters and of buffers
    distance: float  # root mean square over the ranks of the parameters' distance to their mean, of that mean's norm


def consensus(parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], weight: float, there: Peers) -> Rounds:
    """Returns a Consensus. Parameters count by each rank's weight; of buffers, those that are real numbers alike."""
    weights = torch.tensor([weight], dtype=torch.float64, device=next(iter(parameters.values())).device)
    kept = {name: x for name, x in buffers.items() if x.is_floating_point()}
    said = [_mean(x.detach().to(working(x.dtype)) * weight) for x in parameters.values()]
    said += [_mean(x.detach().to(working(x.dtype))) for x in kept.values()]
    total, *means = yield from lockstep([(there, conversation) for conversation in (_mean(weights), *said)])
    found = dict(zip((*parameters, *kept), means, strict=True))
    for name in parameters:
        found[name] = found[name] / float(total)
    apart = sum(_square(found[name] - p.detach()) for name, p in parameters.items())
    (away,) = yield from lockstep([(there, _mean(torch.full_like(weights, apart)))])
    whole = sum(_square(found[name]) for name in parameters)
    return Consensus(found, sqrt(float(away) / whole) if whole else 0.0)


def _mean(x: Tensor) -> Generator[Message, Reply[Tensor], Tensor]:
    reply = yield Message(x, Identity())
    return reply.reduced


def _square(x: Tensor) -> float:
    return float(torch.linalg.vector_norm(x, dtype=torch.float64)) ** 2
