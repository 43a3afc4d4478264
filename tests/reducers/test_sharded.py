from functools import cache

import pytest
import torch

from thinwire import Average, Cast, Chain, Entropy, Identity, Quantize, RandomK, Sharded, Sign, TopK
from thinwire.extend import Codec, Reducer

from ..helpers import by_rank, same_bits, started, step

ENTRIES = 2**16
WORLD_SIZES = (4, 8, 16, 64)


@cache
def link_bytes(reducer: Reducer, ranks: int) -> int:
    """Link bytes of the busiest rank in a step."""
    specialized, states = started(reducer, torch.zeros(ENTRIES), ranks)
    # All ranks have the same tensor: byte counts do not depend on it, and sampling 64 tensors takes time.
    return max(meter.link_bytes for meter in step(specialized, by_rank(1, ENTRIES) * ranks, states).meters)


@pytest.mark.parametrize("ranks", WORLD_SIZES)
def test_link_bytes_stay_flat_as_ranks_are_added(ranks: int) -> None:
    encoded = ENTRIES + 4 * ENTRIES // 512  # a byte per entry, and the scales
    carried = link_bytes(Sharded(Quantize(8), Quantize(8)), ranks)
    assert carried == 2 * (ranks - 1) * encoded // ranks


@pytest.mark.parametrize("ranks", WORLD_SIZES)
def test_sharded_8_bits_take_about_half_the_bytes_of_a_half_precision_all_reduce(ranks: int) -> None:
    half = link_bytes(Average(Cast("float16")), ranks)
    assert half == 2 * (ranks - 1) * 2 * ENTRIES // ranks
    assert link_bytes(Sharded(Quantize(8), Quantize(8)), ranks) <= 0.55 * half


def test_link_bytes_of_the_gathered_form_grow_with_the_ranks() -> None:
    few, many = (link_bytes(Average(Quantize(8)), ranks) for ranks in (4, 16))
    assert (few, many) == (3 * (ENTRIES + ENTRIES // 128), 15 * (ENTRIES + ENTRIES // 128))
    assert few >= 0.99 * link_bytes(Average(Cast("float16")), 4), (
        "on 4 ranks, no fewer bytes than a half-precision all-reduce"
    )


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("down", [TopK(0.2), Sign(), Quantize(2), RandomK(0.3), Chain(TopK(0.3), Entropy())], ids=repr)
def test_the_residual_of_a_shards_server_is_sent_later(down: Codec, ranks: int) -> None:
    entries = 50  # not a multiple of the world size: the last shard is padded
    specialized, states = started(Sharded(Quantize(8), down), torch.zeros(entries), ranks)
    received, reduced = torch.zeros(entries), torch.zeros(entries)
    for i in range(20):
        result = step(specialized, by_rank(ranks, entries, seed=i), states)
        states = result.states
        received += torch.stack([reply.sent for reply in result.replies]).mean(0)
        reduced += result.reduced
    residual = torch.cat([state.residual.flatten() for state in states])[:entries]
    torch.testing.assert_close(reduced + residual, received, rtol=0, atol=1e-4)
    assert residual.abs().max() > 1e-3, "without a residual, this test would pass for a reducer without state"


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
@pytest.mark.parametrize("shape", [(), (1,), (5,), (3, 4), (2, 3, 4, 5)])
def test_every_entry_returns_to_its_position(shape: tuple[int, ...], ranks: int) -> None:
    xs = by_rank(ranks, *shape)
    specialized, states = started(Sharded(Identity(), Identity()), xs[0], ranks)
    result = step(specialized, xs, states)
    torch.testing.assert_close(result.reduced, torch.stack(xs).mean(0))
    assert all(same_bits(reply.sent, x) for reply, x in zip(result.replies, xs, strict=True))


def test_every_rank_keeps_the_residual_of_its_own_shard_only() -> None:
    specialized, states = started(Sharded(Quantize(8), Sign()), torch.zeros(100), 4)
    assert [state.residual.numel() for state in states] == [0] * 4
    states = step(specialized, by_rank(4, 100), states).states
    assert [state.residual.numel() for state in states] == [25] * 4


def test_a_step_takes_two_rounds() -> None:
    specialized, states = started(Sharded(Quantize(8), Quantize(8)), torch.zeros(100), 4)
    assert {meter.rounds for meter in step(specialized, by_rank(4, 100), states).meters} == {2}


def test_shards_of_variable_length() -> None:
    xs = by_rank(3, 100)
    specialized, states = started(Sharded(Entropy(), Entropy()), xs[0], 3)
    torch.testing.assert_close(step(specialized, xs, states).reduced, torch.stack(xs).mean(0))


@pytest.mark.parametrize(
    ("up", "down", "problem"), [("int8", Identity(), "for up, not 'int8'"), (Identity(), None, "for down, not None")]
)
def test_an_invalid_setting_is_an_error(up: object, down: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Sharded(up, down)  # type: ignore[arg-type]
