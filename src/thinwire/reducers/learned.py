"""The base of LGC's two forms: training of the auto-encoder, regular checks of its error, and retraining."""

from abc import abstractmethod
from collections.abc import Generator
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from ..codecs import Identity
from ..core import Codec, Conversation, Message, Parameter, Reducer, Reply, broadcast_from, gather_to, states_of
from ..core.lazy import is_finite
from ..core.outcome import Learning
from .auto_encoder import OPTIMIZERS, AutoEncoder, Trained, stepped
from .average import STRIDE

SMOOTHING = 0.1  # weight of the latest error in the running mean while training
MAX_ERROR = 2.0  # relative errors are clamped to this; NaN counts as this


class LearnedState(NamedTuple):
    step: int
    seed: int
    trained: Trained
    until: int  # the step at which training ends
    error: float  # relative error of the ranks' mean at the last check; a running mean while training
    relearned: int  # number of retrainings


@dataclass(frozen=True, repr=False)
class Learned(Reducer):
    """Learned compression: ranks send codes of an auto-encoder instead of values.

    While it trains, all ranks send their values in full, and it trains on them. Every `check_every` steps its error is
    measured on full values; above `bound`, it is trained again. It runs on the CPU, wherever the values are, as all
    ranks must get the same bits.
    """

    bounded: ClassVar[bool] = True

    learning_steps: int = 300  # before codes are sent, and at each retraining; higher: smaller error, later
    channels: int = 4  # of the code, each one number per 16 values; higher: smaller error, more bytes
    codec: Codec = Identity()  # of the codes; training takes its error into account
    feedback: str = "none"  # whose code error stays in the residual
    optimizer: str = "adam"  # of the auto-encoder, or "sgd"
    rate: float = 1e-3  # learning rate of the auto-encoder
    check_every: int = 50  # steps between checks, in which all send full values; higher: fewer bytes
    bound: float = 0.6  # of the relative error; above it, the auto-encoder is trained again

    FEEDBACKS: ClassVar[tuple[str, ...]] = ("none", "mean")

    def __post_init__(self) -> None:
        name = type(self).__name__
        for field, least in (("learning_steps", 0), ("channels", 1), ("check_every", 2)):
            value = getattr(self, field)
            if not (isinstance(value, int) and value >= least):
                raise ValueError(f"{name} takes a {field} of {least} or more, not {value!r}")
        if not isinstance(self.codec, Codec):
            raise ValueError(f"{name}(codec=...) takes a codec, not {self.codec!r}")
        for field, choices in (("feedback", self.FEEDBACKS), ("optimizer", OPTIMIZERS)):
            if getattr(self, field) not in choices:
                known = ", ".join(map(repr, choices))
                raise ValueError(f"{name} takes a {field} of {known}, not {getattr(self, field)!r}")
        if not self.rate > 0:
            raise ValueError(f"{name} takes a learning rate above 0, not {self.rate!r}")
        if not 0 < self.bound < 1:
            raise ValueError(f"{name} takes a bound of the error above 0 and below 1, not {self.bound!r}")

    @abstractmethod
    def for_leader(self, parameter: Parameter, hold: int) -> "Learned":
        """The reducer for values at a leader's positions, where the leader changes every `hold` steps."""

    def specialize(self, parameter: Parameter) -> Reducer:
        raise ValueError(f"{self!r} is for values at a leader's positions: use LeaderTopK(values={self!r})")

    @property
    @abstractmethod
    def network(self) -> AutoEncoder: ...

    @abstractmethod
    def decoded(self, weights: Tensor, rows: Tensor, state: LearnedState) -> tuple[Tensor, Tensor]:
        """The mean as decoded from the codes of all ranks' values, and the training loss."""

    @abstractmethod
    def send_in_full(
        self, x: Tensor, state: LearnedState
    ) -> Generator[Message, Reply[Any], tuple[Tensor, LearnedState]]:
        """Send all values, and train on them or check the error; returns their mean and the next state."""

    @abstractmethod
    def coded(self, x: Tensor, state: LearnedState) -> Generator[Message, Reply[Any], Reply[Tensor]]:
        """Send codes."""

    def reduce(self, x: Tensor, state: LearnedState) -> Conversation:
        if not x.numel():
            return (yield Message(x, Identity(), state.seed)), state
        flat = x.flatten()
        if self.sends_all(state):
            mean, next_state = yield from self.send_in_full(flat, state)
            reply = Reply(mean, flat)
        else:
            reply = yield from self.coded(flat, state)
            next_state = state._replace(step=state.step + 1)
        shaped = Reply(reply.reduced.view(x.shape), reply.sent.view(x.shape))
        return shaped, next_state._replace(seed=state.seed + STRIDE)

    def init(self, like: Tensor, seed: int) -> LearnedState:
        return LearnedState(0, seed, self.network.initial(seed), self.learning_steps, 1.0, 0)

    def is_learning(self, state: LearnedState) -> bool:
        return state.step < state.until

    def decides(self, state: LearnedState) -> bool:
        """Whether training may end or start after this step, which depends on its error."""
        return state.step + 1 >= state.until

    def sends_all(self, state: LearnedState) -> bool:
        """Whether all ranks send full values in this step, for training or for a check."""
        return self.is_learning(state) or (state.step - state.until + 1) % self.check_every == 0

    def learning(self, state: LearnedState) -> Learning:
        """A report on the code."""
        return Learning(state.error, state.relearned, self.is_learning(state))

    def trained_on(self, rows: Tensor, state: LearnedState) -> tuple[float, Trained]:
        """The relative error on these values, and the auto-encoder; during training, after a step on them."""
        rows, trained, training = rows.cpu().float(), state.trained, self.is_learning(state)
        mean = rows.mean(0)
        size = float(mean.norm())
        if not 0 < size < inf:
            return state.error, trained  # all zeros, or not finite: no training step
        with torch.set_grad_enabled(training):
            weights = trained.weights.clone().requires_grad_(training)
            decoded, loss = self.decoded(weights, rows, state)
        error = float((decoded.detach() - mean).norm()) / size
        error = error if error < MAX_ERROR else MAX_ERROR  # NaN, too
        if not training:
            return error, trained
        (gradient,) = torch.autograd.grad(loss, weights)
        after = stepped(trained, gradient, self.optimizer, self.rate)
        if not is_finite(after.weights):
            after = self.network.initial(trained.steps)
        return error if trained.steps == 0 else state.error + SMOOTHING * (error - state.error), after

    def after(self, state: LearnedState, error: float, trained: Trained) -> LearnedState:
        """The state after a step in which the error was measured."""
        step, until, relearned = state.step + 1, state.until, state.relearned
        if step >= until and not error <= self.bound:
            until, relearned = step + max(1, self.learning_steps), relearned + 1
        return LearnedState(step, state.seed, trained, until, error, relearned)

    def train_on_one_rank(
        self, x: Tensor, state: LearnedState, trainer: int, ranks: tuple[int, ...], sizes: int | None = None
    ) -> Generator[Message, Reply[Any], tuple[Tensor, LearnedState]]:
        """One rank (the trainer) receives all values, trains on them, and sends the mean and the error.

        At the end of training it also sends its first `sizes` weights; None: all of them.
        """
        received = yield Message(x, Identity(), state.seed, route=gather_to(trainer))
        answer, trained = x.new_zeros(len(x) + 1), state.trained
        if received.reduced.ndim > x.ndim:  # only the trainer receives them
            rows = received.reduced[list(ranks)]
            error, trained = self.trained_on(rows, state)
            answer = torch.cat([rows.mean(0), x.new_tensor([error])])
        shared = yield Message(answer, Identity(), state.seed, route=broadcast_from(trainer))
        next_state = self.after(state, float(shared.reduced[-1]), trained)
        if self.is_learning(state) and not self.is_learning(next_state):
            weights = trained.weights
            count = len(weights) if sizes is None else sizes
            new = yield Message(weights[:count].to(x.device), Identity(), state.seed, route=broadcast_from(trainer))
            if received.reduced.ndim == x.ndim:
                known = torch.cat([new.reduced.cpu(), weights[count:]])
                next_state = next_state._replace(trained=trained._replace(weights=known))
        return shared.reduced[:-1], next_state

    def as_decoded(self, code: Tensor, seed: int) -> Tensor:
        """A code as it is received; the gradient passes the codec unchanged (straight-through)."""
        if self.codec == Identity():
            return code
        (received, *_) = self.codec.decode(self.codec.encode((code.detach(),), seed), seed)
        return code + (received - code.detach())


def learning_of(reducer: Reducer, state: Any) -> Learning | None:
    """The state of the learned code inside a reducer; None if it has none."""
    found = (part.learning(its_state) for part, its_state in states_of(reducer, state) if isinstance(part, Learned))
    return next(found, None)
