from collections.abc import Generator
from dataclasses import FrozenInstanceError, dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from thinwire import Identity, Quantize, TopK
from thinwire.core import Reducer, Strategy
from thinwire.core.described import Described
from thinwire.core.lazy import outline
from thinwire.core.outcome import StepResult
from thinwire.extend import Codec, Message, Reply, all_ranks, lockstep

from ..helpers import parameter, random


def conversation(name: int, rounds: int) -> Generator[Message, Reply, tuple[int, list[float]]]:
    """Sends its name in every round; returns the replies."""
    received = []
    for _ in range(rounds):
        reply = yield Message(torch.tensor([float(name)]), Identity())
        received.append(float(reply.reduced))
    return name, received


def run(rounds: Any) -> tuple[Any, list[list[float]]]:
    """Reply with ten times each value plus the round; returns the result and the values sent in each round."""
    sent: list[list[float]] = []
    replies = None
    while True:
        try:
            envelopes = rounds.send(replies)
        except StopIteration as end:
            return end.value, sent
        sent.append([float(envelope.message.tensor) for envelope in envelopes])
        replies = [Reply(e.message.tensor * 10 + len(sent), e.message.tensor) for e in envelopes]


def test_a_round_has_one_message_of_each_conversation() -> None:
    result, sent = run(lockstep((all_ranks(1), conversation(name, 3)) for name in (1, 2, 4)))
    assert sent == [[1, 2, 4]] * 3
    assert result == [(1, [11, 12, 13]), (2, [21, 22, 23]), (4, [41, 42, 43])]


def test_conversations_of_different_lengths_each_get_their_own_replies() -> None:
    result, sent = run(lockstep((all_ranks(1), conversation(name, name)) for name in (2, 0, 3, 1)))
    assert sent == [[2, 3, 1], [2, 3], [3]]
    assert result == [(2, [21, 22]), (0, []), (3, [31, 32, 33]), (1, [11])]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_conversations_without_messages_take_no_round(count: int) -> None:
    result, sent = run(lockstep([(all_ranks(1), conversation(name, 0)) for name in range(count)]))
    assert sent == []
    assert result == [(name, []) for name in range(count)]


def test_every_message_has_the_peers_of_its_conversation() -> None:
    rounds = lockstep([(all_ranks(1), conversation(1, 1)), (all_ranks(2), conversation(2, 1))])
    assert [envelope.peers for envelope in rounds.send(None)] == [all_ranks(1), all_ranks(2)]


def test_an_error_in_a_conversation_is_raised() -> None:
    def failing() -> Generator[Message, Reply, None]:
        yield Message(torch.ones(1), Identity())
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run(lockstep([(all_ranks(1), conversation(1, 3)), (all_ranks(1), failing())]))


def test_a_round_with_too_few_replies_is_an_error() -> None:
    rounds = lockstep([(all_ranks(1), conversation(1, 1)), (all_ranks(1), conversation(2, 1))])
    rounds.send(None)
    with pytest.raises(ValueError, match="zip"):
        rounds.send([Reply(torch.ones(1), torch.ones(1))])


def test_an_outline_is_a_meta_tensor_of_the_same_shape_and_dtype() -> None:
    x = random(3, 4, dtype=torch.float64)
    like = outline(x)
    assert like.is_meta
    assert (like.shape, like.dtype) == (x.shape, x.dtype)


@dataclass(frozen=True, repr=False)
class Sample(Described):
    first: int
    second: str = "b"
    third: float = 0.5


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Sample(1), "Sample(1)"),
        (Sample(1, "b", 0.5), "Sample(1)"),
        (Sample(1, "c"), "Sample(1, second='c')"),
        (Sample(1, third=2.0), "Sample(1, third=2.0)"),
        (Identity(), "Identity()"),
        (TopK(0.1), "TopK(0.1)"),
        (Quantize(4, block=64), "Quantize(4, block=64)"),
    ],
)
def test_a_repr_shows_settings_that_differ_from_the_default(value: Described, text: str) -> None:
    assert repr(value) == text


def test_described_objects_are_frozen_and_equal_by_value() -> None:
    codec = TopK(0.1)
    with pytest.raises(FrozenInstanceError):
        codec.ratio = 0.2  # type: ignore[misc]
    assert codec == TopK(0.1) != TopK(0.2)
    assert hash(codec) == hash(TopK(0.1))


@pytest.mark.parametrize("kind", [Codec, Reducer, Strategy])
def test_abstract_classes_cannot_be_instantiated(kind: type) -> None:
    with pytest.raises(TypeError, match=f"abstract class {kind.__name__}"):
        kind()


class WithoutMessages(Strategy):
    def init(self, replica: Any) -> str:
        return "state"


def test_a_strategy_exchanges_nothing_by_default() -> None:
    for rounds in (WithoutMessages().before_update(None, "state"), WithoutMessages().after_update(None, "state")):  # type: ignore[arg-type]
        assert run(rounds) == (StepResult("state"), [])


class Plain(Reducer):
    def init(self, like: Tensor, seed: int) -> None:
        return None

    def reduce(self, x: Tensor, state: None) -> Any:
        return (yield Message(x, Identity())), None


def test_specialize_returns_the_reducer_itself_by_default() -> None:
    reducer = Plain()
    assert reducer.specialize(parameter(random(3))) is reducer
    assert not reducer.needs_shape
