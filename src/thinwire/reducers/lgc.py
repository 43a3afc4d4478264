from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..codecs import Identity
from ..core import ALL_GATHER, Message, Parameter, Reply, broadcast_from
from .auto_encoder import AutoEncoder
from .learned import Learned, LearnedState

WEIGHTS = ("alike", "sent")


@dataclass(frozen=True, repr=False)
class LGC(Learned):
    """Learned Gradient Compression (Abrahamyan et al., 2021) with all-reduce: an auto-encoder compresses the values.

    Each step, every rank encodes its values; the codes are averaged, and every rank decodes the mean code.
    """

    same_arithmetic: ClassVar[bool] = True

    feedback: str = "own"  # whose code error is the residual: the rank's "own" code, the "mean" code, or "none"
    weights: str = "alike"  # all ranks train "alike", on all values; or one rank trains, and its weights are "sent"
    ranks: tuple[int, ...] = (0,)  # set for a model

    FEEDBACKS: ClassVar[tuple[str, ...]] = ("own", "mean", "none")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weights not in WEIGHTS:
            raise ValueError(f"LGC takes weights of {', '.join(map(repr, WEIGHTS))}, not {self.weights!r}")

    @property
    def network(self) -> AutoEncoder:
        return AutoEncoder(self.channels)

    def for_leader(self, parameter: Parameter, hold: int) -> Learned:
        if parameter.server is not None:
            raise ValueError(f"{self!r} is for all-reduce; through a parameter server, use LGCServer(...)")
        return replace(self, ranks=parameter.ranks)

    def send_in_full(
        self, x: Tensor, state: LearnedState
    ) -> Generator[Message, Reply[Any], tuple[Tensor, LearnedState]]:
        if self.weights == "sent":
            return (yield from self.train_on_one_rank(x, state, self.ranks[0], self.ranks))
        received = yield Message(x, Identity(), state.seed, route=ALL_GATHER)
        rows = received.reduced[list(self.ranks)]
        error, trained = self.trained_on(rows, state)
        if self.decides(state):  # errors may differ in the last bits between ranks, but the decision must not
            shared = yield Message(x.new_tensor([error]), Identity(), state.seed, route=broadcast_from(self.ranks[0]))
            error = float(shared.reduced)
        return rows.mean(0), self.after(state, error, trained)

    def coded(self, x: Tensor, state: LearnedState) -> Generator[Message, Reply[Any], Reply[Tensor]]:
        weights, network = state.trained.weights, self.network
        code = network.encode(weights, x.cpu().float().unsqueeze(0))[0]
        agreed = yield Message(code.to(x.device), self.codec, state.seed)
        mean = network.decode(weights, agreed.reduced.cpu(), len(x)).to(x)
        sent = {"none": x, "mean": mean}.get(self.feedback)
        if sent is None:
            sent = network.decode(weights, agreed.sent.cpu(), len(x)).to(x)
        return Reply(mean, sent)

    def decoded(self, weights: Tensor, rows: Tensor, state: LearnedState) -> tuple[Tensor, Tensor]:
        codes = self.network.encode(weights, rows)
        code = torch.stack([self.as_decoded(code, state.seed) for code in codes]).mean(0)
        decoded = self.network.decode(weights, code, rows.shape[1])
        return decoded, (decoded - rows.mean(0)).square().mean()
