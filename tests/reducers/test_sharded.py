from functools import cache

import pytest
import torch

from thinwire import Average, Cast, Chain, Entropy, Identity, Quantize, RandomK, Sharded, Sign, TopK
from thinwire.extend import Codec, Reducer

from ..helpers import by_rank, same_bits, started, step

ENTRIES = 2**16
WORLDS = (4, 8, 16, 64)


@cache
def link_bytes(reducer: Reducer, ranks: int) -> int:
    """What the busiest node's network card carries in a step."""
    suited, states = started(reducer, torch.zeros(ENTRIES), ranks)
    # Every rank says the same: what it costs does not depend on it, and 64 different tensors take a while to draw.
    return max(meter.link_bytes for meter in step(suited, by_rank(1, ENTRIES) * ranks, states).meters)


@pytest.mark.parametrize("ranks", WORLDS)
def test_what_a_node_carries_stays_flat_as_ranks_are_added(ranks: int) -> None:
    sealed = ENTRIES + 4 * ENTRIES // 512  # a byte an entry, and the scales
    carried = link_bytes(Sharded(Quantize(8), Quantize(8)), ranks)
    assert carried == 2 * (ranks - 1) * sealed // ranks


@pytest.mark.parametrize("ranks", WORLDS)
def test_eight_bits_are_about_half_of_a_half_precision_all_reduce(ranks: int) -> None:
    half = link_bytes(Average(Cast("float16")), ranks)
    assert half == 2 * (ranks - 1) * 2 * ENTRIES // ranks
    assert link_bytes(Sharded(Quantize(8), Quantize(8)), ranks) <= 0.55 * half


def test_the_same_codec_gathered_grows_with_the_ranks() -> None:
    few, many = (link_bytes(Average(Quantize(8)), ranks) for ranks in (4, 16))
    assert (few, many) == (3 * (ENTRIES + ENTRIES // 128), 15 * (ENTRIES + ENTRIES // 128))
    assert few >= 0.99 * link_bytes(Average(Cast("float16")), 4), "the trap: as many bytes as a plain all-reduce"


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("down", [TopK(0.2), Sign(), Quantize(2), RandomK(0.3), Chain(TopK(0.3), Entropy())], ids=repr)
def test_what_a_shards_server_could_not_say_it_says_later(down: Codec, ranks: int) -> None:
    entries = 50  # not a multiple of the ranks: the last shard is padded
    suited, states = started(Sharded(Quantize(8), down), torch.zeros(entries), ranks)
    heard, told = torch.zeros(entries), torch.zeros(entries)
    for i in range(20):
        held = step(suited, by_rank(ranks, entries, seed=i), states)
        states = held.states
        heard += torch.stack([reply.sent for reply in held.replies]).mean(0)
        told += held.reduced
    unsaid = torch.cat([state.residual.flatten() for state in states])[:entries]
    torch.testing.assert_close(told + unsaid, heard, rtol=0, atol=1e-4)
    assert unsaid.abs().max() > 1e-3, "nothing was left unsaid: this test would pass without memory"


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
@pytest.mark.parametrize("shape", [(), (1,), (5,), (3, 4), (2, 3, 4, 5)])
def test_every_entry_comes_back_to_its_place(shape: tuple[int, ...], ranks: int) -> None:
    xs = by_rank(ranks, *shape)
    suited, states = started(Sharded(Identity(), Identity()), xs[0], ranks)
    held = step(suited, xs, states)
    torch.testing.assert_close(held.reduced, torch.stack(xs).mean(0))
    assert all(same_bits(reply.sent, x) for reply, x in zip(held.replies, xs, strict=True))


def test_every_rank_remembers_its_own_shard_only() -> None:
    suited, states = started(Sharded(Quantize(8), Sign()), torch.zeros(100), 4)
    assert [state.residual.numel() for state in states] == [0] * 4
    states = step(suited, by_rank(4, 100), states).states
    assert [state.residual.numel() for state in states] == [25] * 4


def test_a_step_takes_two_rounds() -> None:
    suited, states = started(Sharded(Quantize(8), Quantize(8)), torch.zeros(100), 4)
    assert {meter.rounds for meter in step(suited, by_rank(4, 100), states).meters} == {2}


def test_shards_of_varying_length_are_carried_too() -> None:
    xs = by_rank(3, 100)
    suited, states = started(Sharded(Entropy(), Entropy()), xs[0], 3)
    torch.testing.assert_close(step(suited, xs, states).reduced, torch.stack(xs).mean(0))


@pytest.mark.parametrize(
    ("up", "down", "problem"), [("int8", Identity(), "for up, not 'int8'"), (Identity(), None, "for down, not None")]
)
def test_a_wrong_setting_is_refused(up: object, down: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Sharded(up, down)  # type: ignore[arg-type]
