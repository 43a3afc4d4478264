"""What LGC's two forms share: a code that is learned, looked at now and then, and learned anew if it does not do."""

from abc import abstractmethod
from collections.abc import Generator
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from ..codecs import Identity
from ..core import EACH, Codec, Conversation, Message, Parameter, Reducer, Reply
from ..core.lazy import is_finite
from ..core.outcome import Learning
from .auto_encoder import OPTIMIZERS, AutoEncoder, Trained, stepped
from .average import STRIDE

FORGETS = 0.1  # of the mean error while it learns, a step
HOPELESS = 2.0  # an error that is as bad as any larger one


class LearnedState(NamedTuple):
    step: int
    seed: int
    trained: Trained
    until: int  # the step before which it learns
    error: float  # of the mean of all values, of its norm: when it was last looked at; in learning, a running mean
    relearned: int


@dataclass(frozen=True, repr=False)
class Learned(Reducer):
    """Values as codes of an auto-encoder, which learns from those of all ranks while these still say them all.

    It is at work on the processor, wherever values are: all ranks have to get the same bits.
    """

    learns: ClassVar[bool] = True

    learning_steps: int = 300  # before codes are said, and again when they are off; higher: closer codes, later
    channels: int = 4  # of the code, one number for every 16 values each; higher: closer, more is sent
    codec: Codec = Identity()  # what codes are said through; it is learned with that in view
    feedback: str = "none"  # what is kept of the code's error for later
    optimizer: str = "adam"  # of the auto-encoder, or "sgd"
    rate: float = 1e-3  # of its learning
    check_every: int = 50  # steps between looks at its error, in which all say their values; higher: less is sent
    bound: float = 0.6  # of the error; above, it learns anew

    FEEDBACKS: ClassVar[tuple[str, ...]] = ("none", "mean")

    def __post_init__(self) -> None:
        name = type(self).__name__
        for field, least in (("learning_steps", 0), ("channels", 1), ("check_every", 2)):
            value = getattr(self, field)
            if not (isinstance(value, int) and value >= least):
                raise ValueError(f"{name} takes a {field} of {least} or more, not {value!r}")
        if not isinstance(self.codec, Codec):
            raise ValueError(f"{name} says codes through a codec, not {self.codec!r}")
        for field, choices in (("feedback", self.FEEDBACKS), ("optimizer", OPTIMIZERS)):
            if getattr(self, field) not in choices:
                known = ", ".join(map(repr, choices))
                raise ValueError(f"{name} takes a {field} of {known}, not {getattr(self, field)!r}")
        if not self.rate > 0:
            raise ValueError(f"{name} learns at a rate above 0, not {self.rate!r}")
        if not 0 < self.bound < 1:
            raise ValueError(f"{name} takes a bound of the error above 0 and below 1, not {self.bound!r}")

    @abstractmethod
    def led(self, parameter: Parameter, hold: int) -> "Learned":
        """The one for values at the places of leaders that change after so many steps."""

    def specialize(self, parameter: Parameter) -> Reducer:
        raise ValueError(f"{self!r} is for values at a leader's places: say LeaderTopK(values={self!r}) around it")

    @property
    @abstractmethod
    def network(self) -> AutoEncoder: ...

    @abstractmethod
    def decoded(self, weights: Tensor, rows: Tensor, state: LearnedState) -> tuple[Tensor, Tensor]:
        """What would come of the codes of all ranks' values, and the loss to learn from."""

    @abstractmethod
    def all_said(self, x: Tensor, state: LearnedState) -> Generator[Message, Reply[Any], tuple[Tensor, LearnedState]]:
        """Say all values, and learn from them or look at the error; returns their mean and the next state."""

    @abstractmethod
    def coded(self, x: Tensor, state: LearnedState) -> Generator[Message, Reply[Any], Reply[Tensor]]:
        """Say codes."""

    def reduce(self, x: Tensor, state: LearnedState) -> Conversation:
        if not x.numel():
            return (yield Message(x, Identity(), state.seed)), state
        flat = x.flatten()
        if self.says_all(state):
            mean, next_state = yield from self.all_said(flat, state)
            reply = Reply(mean, flat)
        else:
            reply = yield from self.coded(flat, state)
            next_state = state._replace(step=state.step + 1)
        shaped = Reply(reply.reduced.view(x.shape), reply.sent.view(x.shape))
        return shaped, next_state._replace(seed=state.seed + STRIDE)

    def init(self, like: Tensor, seed: int) -> LearnedState:
        return LearnedState(0, seed, self.network.begun(seed), self.learning_steps, 1.0, 0)

    def is_learning(self, state: LearnedState) -> bool:
        return state.step < state.until

    def decides(self, state: LearnedState) -> bool:
        """Whether what comes next depends on the error of this step."""
        return state.step + 1 >= state.until

    def says_all(self, state: LearnedState) -> bool:
        """Whether this is a step in which all say their values, to learn from them or to look at the error."""
        return self.is_learning(state) or (state.step - state.until + 1) % self.check_every == 0

    def learning(self, state: LearnedState) -> Learning:
        return Learning(state.error, state.relearned, self.is_learning(state))

    def looked(self, rows: Tensor, state: LearnedState) -> tuple[float, Trained]:
        """The error for these values, and the auto-encoder, after a step if it is learning."""
        rows, trained, learns = rows.cpu().float(), state.trained, self.is_learning(state)
        mean = rows.mean(0)
        size = float(mean.norm())
        if not 0 < size < inf:
            return state.error, trained  # there is nothing to learn from, or nothing that can be
        with torch.set_grad_enabled(learns):
            weights = trained.weights.clone().requires_grad_(learns)
            decoded, loss = self.decoded(weights, rows, state)
        off = float((decoded.detach() - mean).norm()) / size
        off = off if off < HOPELESS else HOPELESS  # which NaN is, too
        if not learns:
            return off, trained
        (gradient,) = torch.autograd.grad(loss, weights)
        after = stepped(trained, gradient, self.optimizer, self.rate)
        if not is_finite(after.weights):
            after = self.network.begun(trained.steps)
        return off if trained.steps == 0 else state.error + FORGETS * (off - state.error), after

    def after(self, state: LearnedState, error: float, trained: Trained) -> LearnedState:
        """The state after a step in which the error was looked at."""
        step, until, relearned = state.step + 1, state.until, state.relearned
        if step >= until and not error <= self.bound:
            until, relearned = step + max(1, self.learning_steps), relearned + 1
        return LearnedState(step, state.seed, trained, until, error, relearned)

    def taught(
        self, x: Tensor, state: LearnedState, teacher: int, ranks: tuple[int, ...], sizes: int | None = None
    ) -> Generator[Message, Reply[Any], tuple[Tensor, LearnedState]]:
        """One rank hears all values, learns, and tells the others the mean and, at the end, so many of its weights."""
        heard = yield Message(x, Identity(), state.seed, source=EACH, target=teacher)
        said, trained = x.new_zeros(len(x) + 1), state.trained
        if heard.reduced.ndim > x.ndim:  # as only the teacher hears it
            rows = heard.reduced[list(ranks)]
            error, trained = self.looked(rows, state)
            said = torch.cat([rows.mean(0), x.new_tensor([error])])
        told = yield Message(said, Identity(), state.seed, source=teacher)
        next_state = self.after(state, float(told.reduced[-1]), trained)
        if self.is_learning(state) and not self.is_learning(next_state):
            weights = trained.weights
            count = len(weights) if sizes is None else sizes
            answer = yield Message(weights[:count].to(x.device), Identity(), state.seed, source=teacher)
            if heard.reduced.ndim == x.ndim:
                known = torch.cat([answer.reduced.cpu(), weights[count:]])
                next_state = next_state._replace(trained=trained._replace(weights=known))
        return told.reduced[:-1], next_state

    def as_said(self, code: Tensor, seed: int) -> Tensor:
        """A code as it is heard; gradients go through as if the codec did nothing."""
        if self.codec == Identity():
            return code
        (heard, *_) = self.codec.decode(self.codec.encode((code.detach(),), seed), seed)
        return code + (heard - code.detach())
