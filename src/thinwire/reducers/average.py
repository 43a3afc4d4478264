from dataclasses import dataclass

from torch import Tensor

from ..codecs import Identity
from ..core import Codec, Conversation, Message, Reducer

STRIDE = 1_000_003  # between the seeds of successive messages of a tensor; the first seeds of tensors are consecutive


@dataclass(frozen=True, repr=False)
class Average(Reducer):
    """The mean over ranks: each rank sends its tensor once, through a codec. Without one it is a dense all-reduce."""

    codec: Codec = Identity()

    def __post_init__(self) -> None:
        if not isinstance(self.codec, Codec):
            raise ValueError(f"Average takes a codec, not {self.codec!r}")

    @property
    def dense(self) -> bool:
        return self.codec == Identity()

    @property
    def lossless(self) -> bool:
        return self.dense

    @property
    def message_codec(self) -> Codec:
        return self.codec

    def init(self, like: Tensor, seed: int) -> int:
        return seed

    def next_state(self, state: int) -> int:
        """The seed of the next message."""
        return state + STRIDE

    def reduce(self, x: Tensor, state: int) -> Conversation:
        reply = yield Message(x, self.codec, seed=state, lazy=True)
        return reply, self.next_state(state)


def as_reducer(what: Codec | Reducer) -> Reducer:
    """A codec alone stands for `Average(codec)`."""
    if isinstance(what, Codec):
        return Average(what)
    if isinstance(what, Reducer):
        return what
    raise ValueError(f"a codec or a reducer is needed here, not {what!r}")
