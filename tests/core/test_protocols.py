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


def talker(name: int, rounds: int) -> Generator[Message, Reply, tuple[int, list[float]]]:
    """Says its name in every round; returns what it heard."""
    heard = []
    for _ in range(rounds):
        reply = yield Message(torch.tensor([float(name)]), Identity())
        heard.append(float(reply.reduced))
    return name, heard


def hold(talk: Any) -> tuple[Any, list[list[float]]]:
    """Answer everything with ten times what was said; returns the outcome and what was said in each round."""
    said: list[list[float]] = []
    answer = None
    while True:
        try:
            envelopes = talk.send(answer)
        except StopIteration as end:
            return end.value, said
        said.append([float(envelope.message.tensor) for envelope in envelopes])
        answer = [Reply(e.message.tensor * 10 + len(said), e.message.tensor) for e in envelopes]


def test_a_round_says_everything_at_once() -> None:
    outcome, said = hold(lockstep((all_ranks(1), talker(name, 3)) for name in (1, 2, 4)))
    assert said == [[1, 2, 4]] * 3
    assert outcome == [(1, [11, 12, 13]), (2, [21, 22, 23]), (4, [41, 42, 43])]


def test_conversations_of_different_lengths_each_get_their_own_replies() -> None:
    outcome, said = hold(lockstep((all_ranks(1), talker(name, name)) for name in (2, 0, 3, 1)))
    assert said == [[2, 3, 1], [2, 3], [3]]
    assert outcome == [(2, [21, 22]), (0, []), (3, [31, 32, 33]), (1, [11])]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_nothing_to_say_takes_no_round(count: int) -> None:
    outcome, said = hold(lockstep([(all_ranks(1), talker(name, 0)) for name in range(count)]))
    assert said == []
    assert outcome == [(name, []) for name in range(count)]


def test_every_message_goes_to_the_peers_it_was_given() -> None:
    talk = lockstep([(all_ranks(1), talker(1, 1)), (all_ranks(2), talker(2, 1))])
    assert [envelope.peers for envelope in talk.send(None)] == [all_ranks(1), all_ranks(2)]


def test_an_error_in_one_conversation_is_heard_outside() -> None:
    def failing() -> Generator[Message, Reply, None]:
        yield Message(torch.ones(1), Identity())
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        hold(lockstep([(all_ranks(1), talker(1, 3)), (all_ranks(1), failing())]))


def test_a_round_with_too_few_replies_is_not_taken() -> None:
    talk = lockstep([(all_ranks(1), talker(1, 1)), (all_ranks(1), talker(2, 1))])
    talk.send(None)
    with pytest.raises(ValueError, match="zip"):
        talk.send([Reply(torch.ones(1), torch.ones(1))])


def test_an_outline_has_a_shape_and_no_memory() -> None:
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
def test_a_description_says_what_differs_from_the_default(value: Described, text: str) -> None:
    assert repr(value) == text


def test_a_description_is_frozen_and_equal_by_value() -> None:
    codec = TopK(0.1)
    with pytest.raises(FrozenInstanceError):
        codec.ratio = 0.2  # type: ignore[misc]
    assert codec == TopK(0.1) != TopK(0.2)
    assert hash(codec) == hash(TopK(0.1))


@pytest.mark.parametrize("kind", [Codec, Reducer, Strategy])
def test_what_is_abstract_cannot_be_made(kind: type) -> None:
    with pytest.raises(TypeError, match=f"abstract class {kind.__name__}"):
        kind()


class Silent(Strategy):
    def init(self, replica: Any) -> str:
        return "state"


def test_a_strategy_says_nothing_unless_it_chooses_to() -> None:
    for talk in (Silent().before_update(None, "state"), Silent().after_update(None, "state")):  # type: ignore[arg-type]
        assert hold(talk) == (StepResult("state"), [])


class Plain(Reducer):
    def init(self, like: Tensor, seed: int) -> None:
        return None

    def reduce(self, x: Tensor, state: None) -> Any:
        return (yield Message(x, Identity())), None


def test_a_reducer_suits_every_parameter_unless_it_chooses() -> None:
    reducer = Plain()
    assert reducer.specialize(parameter(random(3))) is reducer
    assert not reducer.needs_shape
