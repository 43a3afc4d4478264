from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..codecs import Cast, TopK
from ..codecs.sparsifier import check_ratio
from ..core import Codec, Message, Parameter, Reply, broadcast_from, gather_to, send
from .auto_encoder import AutoEncoder
from .learned import Learned, LearnedState
from .serving import check_codec

DECODERS = ("turn", "rank")


@dataclass(frozen=True, repr=False)
class LGCServer(Learned):
    """Learned Gradient Compression (Abrahamyan et al., 2021) through a parameter server.

    Each step, the leader sends the code of its values, and every rank sends its largest values (the innovation). The
    server has one decoder per rank; it decodes the common code for each rank and answers with the mean.
    """

    innovation: float = 0.01  # fraction of its values, the largest, that each rank sends itself; higher: more bytes
    similarity: float = 0.0  # weight of the loss between the ranks' codes; the rest is for reconstruction
    decoders: str = "turn"  # by "turn": one for the leader, one for the rank after it, ...; or one per "rank"
    down: Codec = Cast("float16")  # codec of the mean, from the server to the ranks
    ranks: tuple[int, ...] = (0,)  # set for a model
    rank: int = 0  # of the server; set for a model
    hold: int = 1  # steps for which a rank is the leader; set for a model

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ratio("LGCServer", self.innovation)
        check_codec("LGCServer", "down", self.down)
        if self.decoders not in DECODERS:
            raise ValueError(f"LGCServer takes decoders of {' or '.join(map(repr, DECODERS))}, not {self.decoders!r}")
        if not 0 <= self.similarity < 1:
            raise ValueError(f"LGCServer takes a similarity of 0 or more and below 1, not {self.similarity!r}")

    @property
    def network(self) -> AutoEncoder:
        return AutoEncoder(self.channels, decoders=len(self.ranks), extra_channel=True)

    def for_leader(self, parameter: Parameter, hold: int) -> Learned:
        if parameter.server is None:
            raise ValueError(f"{self!r} needs a parameter server: put Server(..., ...) around it")
        return replace(self, ranks=parameter.ranks, rank=parameter.server, hold=hold)

    def send_in_full(
        self, x: Tensor, state: LearnedState
    ) -> Generator[Message, Reply[Any], tuple[Tensor, LearnedState]]:
        encoder = self.network.sizes[0]  # decoders stay at the server
        return (yield from self.train_on_one_rank(x, state, self.rank, self.ranks, encoder))

    def coded(self, x: Tensor, state: LearnedState) -> Generator[Message, Reply[Any], Reply[Tensor]]:
        weights, network = state.trained.weights, self.network
        code = network.encode(weights, x.cpu().float().unsqueeze(0))[0].to(x.device)
        common = yield Message(code, self.codec, state.seed, route=send(self.ranks[self._leader(state)], self.rank))
        own = yield Message(x, TopK(self.innovation), state.seed, route=gather_to(self.rank))
        mean = torch.zeros_like(x)
        if own.reduced.ndim > x.ndim:  # only the server receives the ranks' values
            innovations = own.reduced[list(self.ranks)].cpu().float()
            mean = self._restored(weights, common.reduced.cpu(), innovations, state).mean(0).to(x)
        answer = yield Message(mean, self.down, state.seed, route=broadcast_from(self.rank))
        return Reply(answer.reduced, x if self.feedback == "none" else answer.reduced)

    def decoded(self, weights: Tensor, rows: Tensor, state: LearnedState) -> tuple[Tensor, Tensor]:
        codes = self.network.encode(weights, rows)
        common = self.as_decoded(codes[self._leader(state)], state.seed)
        own = torch.stack([TopK(self.innovation).keep(row).dense() for row in rows])
        restored = self._restored(weights, common, own, state)
        reconstruction = (restored - rows).square().mean(1).sum()
        apart = (codes.unsqueeze(0) - codes.unsqueeze(1)).square().mean((2, 3)).sum()
        return restored.mean(0), (1 - self.similarity) * reconstruction + self.similarity * apart

    def _restored(self, weights: Tensor, code: Tensor, own: Tensor, state: LearnedState) -> Tensor:
        """The common code decoded for each rank; where the rank sent its own value, that value."""
        first = self._leader(state) if self.decoders == "turn" else 0
        which = [(k - first) % len(own) for k in range(len(own))]
        length = own.shape[1]
        rows = [self.network.decode(weights, code, length, k, row) for k, row in zip(which, own, strict=True)]
        return torch.where(own != 0, own, torch.stack(rows))

    def _leader(self, state: LearnedState) -> int:
        """The index in `ranks` of the leader."""
        return state.step // self.hold % len(self.ranks)
