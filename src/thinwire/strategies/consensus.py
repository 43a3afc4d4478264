"""The mean of all replicas, and their distance to it."""

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
    distance: float  # root mean square over ranks of |parameters - mean|, relative to |mean|


def consensus(parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], weight: float, peers: Peers) -> Rounds:
    """Returns a Consensus. Parameters are weighted by rank; floating-point buffers are averaged with equal weights."""
    weights = torch.tensor([weight], dtype=torch.float64, device=next(iter(parameters.values())).device)
    floating = {name: x for name, x in buffers.items() if x.is_floating_point()}
    conversations = [_mean(x.detach().to(working(x.dtype)) * weight) for x in parameters.values()]
    conversations += [_mean(x.detach().to(working(x.dtype))) for x in floating.values()]
    total, *means = yield from lockstep([(peers, conversation) for conversation in (_mean(weights), *conversations)])
    found = dict(zip((*parameters, *floating), means, strict=True))
    for name in parameters:
        found[name] = found[name] / float(total)
    deviation = sum(_square(found[name] - p.detach()) for name, p in parameters.items())
    (variance,) = yield from lockstep([(peers, _mean(torch.full_like(weights, deviation)))])
    square = sum(_square(found[name]) for name in parameters)
    return Consensus(found, sqrt(float(variance) / square) if square else 0.0)


def _mean(x: Tensor) -> Generator[Message, Reply[Tensor], Tensor]:
    reply = yield Message(x, Identity())
    return reply.reduced


def _square(x: Tensor) -> float:
    return float(torch.linalg.vector_norm(x, dtype=torch.float64)) ** 2
