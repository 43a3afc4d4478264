from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..codecs import Identity, TopK
from ..codecs.spots import Spots
from ..core import EACH, Codec, Conversation, Message, Parameter, Reducer, Reply
from ..kernels.sparse import Sparse
from ..precision import working
from .auto_encoder import AutoEncoder, Trained, learned
from .average import STRIDE, Average
from .feedback import Feedback

FEEDBACK = ("own", "mean", "none")


class LGCState(NamedTuple):
    step: int
    seed: int
    residual: Tensor
    trained: Trained
    until: int  # the step that learning ends before
    error: float  # of the decoded mean, of its norm, when it was last looked at
    relearned: int  # how often it had to learn anew


@dataclass(frozen=True, repr=False)
class LGC(Reducer):
    """Learned Gradient Compression for all-reduce: values at a leader's places are averaged as learned codes.

    Dense at first; then all say their values, and learn to code them; then they say codes.
    """

    ratio: float = 0.001
    dense_steps: int = 200
    learning_steps: int = 300
    order: str = "value"
    feedback: str = "own"  # what is remembered of the auto-encoder's error
    rate: float = 1e-3  # of its learning
    channels: int = 4  # of the code, at every sixteenth entry
    codec: Codec = Identity()  # for codes
    check_every: int = 50  # steps between looks at its error; in each of them it goes on learning
    bound: float = 0.5  # of that error; above, it learns anew
    sizes: tuple[int, ...] = ()  # of the layers that it is for; set as it is attached
    ranks: int = 1  # set as it is attached

    @property
    def spots(self) -> Spots:
        return Spots(self.ratio, order=self.order, sizes=self.sizes)

    @property
    def network(self) -> AutoEncoder:
        return AutoEncoder(self.channels)

    def suited(self, parameter: Parameter) -> Reducer:
        if parameter.like.ndim < 2 or parameter.end == "first":
            return Average()
        if parameter.end == "last":
            return Feedback(TopK(self.ratio))
        return replace(self, ranks=parameter.ranks)

    def joined(self, sizes: tuple[int, ...]) -> Reducer:
        return replace(self, sizes=sizes)

    def init(self, like: Tensor, seed: int) -> LGCState:
        residual = torch.zeros(like.shape, dtype=working(like.dtype), device=like.device)
        return LGCState(0, seed, residual, self.network.begun(seed), self.dense_steps + self.learning_steps, 1.0, 0)

    def reduce(self, x: Tensor, state: LGCState) -> Conversation:
        step, seed = state.step, state.seed + STRIDE
        if step < self.dense_steps:
            reply = yield Message(x, Identity(), state.seed)
            return reply, state._replace(step=step + 1, seed=seed)
        total = state.residual + x
        places: Reply[Any] = yield Message(total, self.spots, state.seed, source=step % self.ranks, lazy=True)
        where, scale = places.reduced.where, places.reduced.values.clamp_min(1e-20)
        flat = total.view(-1)
        mine = flat[where]
        if step < state.until or (step - state.until) % self.check_every == 0:
            heard = yield Message(mine, Identity(), state.seed, source=EACH)
            mean = heard.reduced.mean(0)
            error, trained = self._learned(heard.reduced / scale, scale, state.trained)
            flat[where] = 0
            until, again = state.until, state.relearned
            if step >= until and error > self.bound:
                until, again = step + 1 + self.learning_steps, again + 1
            next_state = LGCState(step + 1, seed, total, trained, until, error, again)
            return Reply(Sparse(mean, where, x), Sparse(mine, where, x)), next_state
        weights = state.trained.weights
        code = self.network.encode(weights, (mine / scale).unsqueeze(0))
        agreed = yield Message(code, self.codec, state.seed)
        mean = self.network.decode(weights, agreed.reduced, mine.numel())[0] * scale
        own = self.network.decode(weights, agreed.sent, mine.numel())[0] * scale
        flat[where] -= {"own": own, "mean": mean, "none": mine}[self.feedback]
        return Reply(Sparse(mean, where, x), Sparse(own, where, x)), state._replace(
            step=step + 1, seed=seed, residual=total
        )

    def _learned(self, values: Tensor, scale: Tensor, trained: Trained) -> tuple[float, Trained]:
        """How far the mean is from what would come of its code, and the auto-encoder after a step."""
        network, mean = self.network, values.mean(0)
        with torch.enable_grad():
            weights = trained.weights.clone().requires_grad_()
            decoded = network.decode(weights, network.encode(weights, values).mean(0, keepdim=True), mean.numel())[0]
            loss = (decoded - mean).square().mean()
            (gradient,) = torch.autograd.grad(loss, weights)
        error = float(((decoded.detach() - mean) * scale).norm() / (mean * scale).norm().clamp_min(1e-30))
        return error, learned(trained, gradient, self.rate)

    def unsaid(self, state: LGCState) -> Tensor:
        return state.residual
