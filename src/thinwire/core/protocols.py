"""The whole of thinwire on one page: what each layer promises the next.

Codec      tensor <-> parts on the wire          pure, no memory
Reducer    a conversation about one tensor       remembers, in an explicit state
Peers      whom to sum over, with what weights   plain data
Strategy   what to talk about, and when          owns the states
Transport  says it, counts it                    the only layer that does I/O
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from torch import Tensor

from .bounds import Bounded
from .described import Described
from .lazy import DeferredDifference, Lazy, LazyCoding
from .outcome import Learning

Parts = tuple[Tensor, ...]  # the signal on top, side information below; a meta tensor is an outline: a shape, no bytes
State = Any  # tensors, numbers and tuples of them: what a checkpoint holds
EACH = -1  # a message's source: every rank, heard one by one; its target: every rank, for its own shard


class PayloadError(ValueError):
    """What came from the wire cannot be a message of the kind that was agreed on."""


class Codec(Described, Bounded, LazyCoding, ABC):
    """Rewrites the parts that stand for a tensor; decode undoes encode, up to the codec's loss."""

    linear: bool = False  # the sum of the peers' signals stands for the sum of their tensors
    variable: bool = False  # the layout of the parts depends on the values, not only on the shape
    numeric: bool = True  # the signal it leaves on top is still numbers, which any codec may take
    takes_codes: bool = False  # it may follow a codec that leaves something other than numbers

    @abstractmethod
    def encode(self, parts: Parts, seed: int) -> Parts: ...

    @abstractmethod
    def decode(self, parts: Parts, seed: int) -> Parts: ...


class Message(NamedTuple):
    tensor: Tensor | Lazy
    codec: Codec
    seed: int = 0  # shared by all peers
    source: int | None = None  # a rank: it alone speaks; None: all do, and what is heard is their weighted sum
    target: int | None = None  # a rank: it alone hears; None: all do
    lazy: bool = False  # whoever says it can do with a reply that is not written out
    about: str = ""  # what the meter counts it under


What = TypeVar("What", covariant=True)


class Reply(NamedTuple, Generic[What]):
    """What came back. Read-only: ranks may share the tensors."""

    reduced: What  # the weighted sum of what the peers sent; zeros for a rank that does not hear it
    sent: What  # my own message, as the peers decode it; zeros for a rank that does not speak


# Yield what you say, receive what came back (lazy only if you said so), return the outcome and the next state.
Conversation = Generator[Message, Reply[Tensor], tuple[Reply[Tensor | Lazy], State]]


class Parameter(NamedTuple):
    """What a reducer may know of a parameter before it sees a gradient."""

    name: str
    kind: str  # of the layer that owns it: conv, dense, recurrent, embedding, attention, norm, other
    like: Tensor  # an outline
    ranks: tuple[int, ...] = (0,)  # that train it
    end: str = ""  # "first" or "last", of the model's matrices
    server: int | None = None  # the rank that all speak by way of


class Reducer(Described, ABC):
    """Turns every peer's tensor into one agreed tensor."""

    same_arithmetic: ClassVar[bool] = False  # ranks compute the same result each, so their arithmetic must agree
    learns: ClassVar[bool] = False  # it has a learned code, of which `learning` gives the error

    @property
    def needs_shape(self) -> bool:
        """Whether the tensor's shape matters; if not, small tensors may be flattened into one conversation."""
        return False

    def specialize(self, parameter: Parameter) -> "Reducer":
        """The reducer that this one becomes for a given parameter."""
        return self

    def fuse(self, sizes: tuple[int, ...]) -> "Reducer | None":
        """The reducer for tensors of these sizes, flattened into one conversation; None: large ones have their own."""
        return None

    @abstractmethod
    def init(self, like: Tensor, seed: int) -> State: ...

    @abstractmethod
    def reduce(self, x: Tensor, state: State) -> Conversation:
        """How often it yields may depend on shared state only, and the state it was given stays valid."""

    def at_rate(self, state: State, rate: float) -> State:
        """The state for gradients that a learning rate is multiplied with, if what it holds depends on that."""
        return state

    def residual(self, state: State) -> Tensor | DeferredDifference | None:
        """What it was given and has not said yet; None if it keeps nothing of the kind."""
        return None

    @property
    def settles_after(self) -> int:
        """Steps after which it sends what it will stay with."""
        return 0

    def diagnose(self, parameters: Collection[Parameter]) -> list[str]:
        """Warnings for the user: settings without effect on a model with these parameters."""
        return []

    def check_optimizer(self, optimizer: Any) -> list[str]:
        """Warnings for the user: what the optimizer and this reducer both do."""
        return []

    def learning(self, state: State) -> Learning | None:
        """How well it has learned to say less; None if it does not learn."""
        return None


@dataclass(frozen=True, repr=False)
class Peers(Described):
    """A weighted sum over ranks: those that it hears, in order."""

    topic: str
    weights: tuple[tuple[int, float], ...]
    receivers: tuple[int, ...] | None = None  # the other ranks that hear it; None: those it hears, with the same Peers
    within: tuple[int, ...] | None = None  # a world of its own: these ranks, numbered from 0 here; None: all


class Envelope(NamedTuple):
    peers: Peers
    message: Message


# A round at a time: yield all that is to be said in it, receive all the replies.
Rounds = Generator[list[Envelope], list[Reply[Tensor]], Any]


def lockstep(conversations: Iterable[tuple[Peers, Generator[Message, Reply[Tensor], Any]]]) -> Rounds:
    """Hold many conversations in step, so that each round costs one exchange; returns their outcomes."""
    live = dict(enumerate(conversations))
    outcomes: list[Any] = [None] * len(live)
    replies: dict[int, Reply[Tensor] | None] = dict.fromkeys(live)
    while live:
        said: dict[int, Envelope] = {}
        for i, (peers, conversation) in list(live.items()):
            try:
                said[i] = Envelope(peers, conversation.send(replies.pop(i)))  # type: ignore[arg-type]  # None starts it
            except StopIteration as end:
                outcomes[i] = end.value
                del live[i]
        if said:
            replies = dict(zip(said, (yield list(said.values())), strict=True))
    return outcomes


class Replica(NamedTuple):
    """One rank's copy of the model, as a strategy sees it."""

    parameters: Mapping[str, Tensor]
    kinds: Mapping[str, str]
    rank: int
    size: int
    hosts: tuple[str, ...] = ()  # the machine of each rank; empty: all are on one
    loss: float | None = None  # of this step, if it was told
    rate: float | None = None  # of learning, if it was told
    factored_model: Any = None  # what a strategy that changes the model itself works with
    ends: Mapping[str, str] = {}  # the model's "first" matrix and its "last"; parts of a model have these, too
    wholes: Mapping[
        str, Any
    ] = {}  # the parameters of which only this rank's part is talked about, as the model has them
