import io
from typing import Any, NamedTuple

import pytest
import torch

from thinwire.core.lazy import DeferredDifference
from thinwire.core.states import Spare, plain, restored
from thinwire.kernels.low_rank_product import LowRankProduct

from ..helpers import random, same_bits


class ExampleState(NamedTuple):
    residual: torch.Tensor
    step: int
    inner: Any
    spare: Spare


def example() -> ExampleState:
    return ExampleState(random(3, 4), 5, (True, 0.5, None, (random(2),)), Spare(random(3, 4)))


def through_a_file(value: Any) -> Any:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def test_a_state_is_restored_from_a_file_with_weights_only() -> None:
    state = {"weight": example(), "bias": 3}
    like = {"weight": ExampleState(torch.zeros(3, 4), 0, (False, 0.0, None, (torch.zeros(2),)), Spare()), "bias": 0}
    loaded = restored(like, through_a_file(plain(state)))
    assert type(loaded["weight"]) is ExampleState
    assert same_bits(loaded["weight"].residual, state["weight"].residual)
    assert loaded["weight"].step == 5
    assert loaded["weight"].inner[:3] == (True, 0.5, None)
    assert same_bits(loaded["weight"].inner[3], state["weight"].inner[3])
    assert loaded["bias"] == 3


def test_plain_contains_tensors_numbers_and_tuples_only() -> None:
    def kinds(value: Any) -> set[type]:
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else ()
        return {type(value)}.union(*map(kinds, inside))

    assert kinds(plain({"weight": example()})) == {dict, tuple, torch.Tensor, int, bool, float, type(None)}


def test_a_saved_state_does_not_share_memory_with_the_state() -> None:
    state = example()
    saved = plain(state)
    state.residual.fill_(7)
    assert same_bits(saved[0], random(3, 4))


def test_a_restored_state_does_not_share_memory_with_the_checkpoint() -> None:
    saved = plain(example())
    loaded = restored(example(), saved)
    saved[0].fill_(7)
    assert same_bits(loaded.residual, random(3, 4))


def test_a_spare_buffer_is_not_saved() -> None:
    saved = plain(example())
    assert saved[3] is None
    assert restored(example(), saved).spare.buffer is None


def test_a_spare_buffer_is_allocated_once() -> None:
    spare = Spare()
    x = random(4, 3).T
    buffer = spare.like(x)
    assert buffer.shape == x.shape
    assert buffer.is_contiguous()
    assert spare.like(x) is buffer


def test_plain_detaches_tensors() -> None:
    assert not plain(random(3).requires_grad_()).requires_grad


@pytest.mark.parametrize("odd", [{1, 2}, "text", object(), [1], b"bytes"])
def test_saving_another_type_is_an_error(odd: Any) -> None:
    with pytest.raises(TypeError, match=type(odd).__name__):
        plain((1, odd))


@pytest.mark.parametrize(
    ("like", "saved", "problem"),
    [
        (torch.zeros(3), 3, "a tensor was expected, the checkpoint has 3"),
        (torch.zeros(3), torch.zeros(4), r"float32 \(3,\) was expected, the checkpoint has torch.float32 \(4,\)"),
        (torch.zeros(3), torch.zeros(3).double(), "float32.* was expected, the checkpoint has torch.float64"),
        ((1, 2), (1, 2, 3), "2 values were expected"),
        ((1, 2), 3, "2 values were expected"),
        (1, 1.0, "int was expected"),
        (True, 1, "bool was expected"),
        (1, True, "int was expected"),
        (None, 1, "NoneType was expected"),
        ({"a": 1}, {"b": 1}, r"lacks \['a'\] and has unexpected \['b'\]"),
        ({"a": 1}, {}, r"lacks \['a'\]"),
        ({"a": 1}, 5, "the checkpoint"),
        ({"a": 1}, None, "the checkpoint"),
        ({"a": 1}, (1,), "the checkpoint"),
        ({"layer.weight": (1, torch.zeros(2))}, {"layer.weight": (1, torch.zeros(3))}, "layer.weight: "),
    ],
)
def test_a_checkpoint_that_does_not_match_is_an_error_that_names_the_difference(
    like: Any, saved: Any, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        restored(like, saved)


def test_an_empty_tensor_is_restored_to_any_size() -> None:
    # The residual of a shard is empty until the first step, when the world size is known.
    assert restored(torch.zeros(0), torch.ones(5)).tolist() == [1.0] * 5
    with pytest.raises(ValueError, match="float64"):
        restored(torch.zeros(0), torch.ones(5).double())


def test_a_list_is_accepted_for_a_tuple() -> None:
    # Some checkpoint formats have no tuples.
    assert restored((1, 2.0), [3, 4.0]) == (3, 4.0)


def test_a_deferred_difference_is_computed_for_the_checkpoint_only() -> None:
    total, sent = random(6, 10), LowRankProduct(random(2, 6, seed=1), random(2, 10, seed=2), random(6, 10))
    residual = DeferredDifference(total, sent)
    saved = plain((residual, 1))
    assert same_bits(saved, (random(6, 10) - sent.dense(), 1))
    assert same_bits(total, random(6, 10))
    assert residual.sent is sent
    loaded, _ = restored((DeferredDifference(torch.zeros(6, 10)), 0), saved)
    assert same_bits(loaded.dense(), residual.dense())
    with pytest.raises(ValueError, match="was expected"):
        restored(residual, torch.zeros(3))
