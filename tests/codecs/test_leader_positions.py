"""Positions of the largest entries: what is sent, its length, and hostile bytes."""

import pytest
import torch
from torch import Tensor

from thinwire import PayloadError
from thinwire.codecs.leader_positions import ORDERS, LeaderPositions, LeaderSparse
from thinwire.core.lazy import materialize
from thinwire.kernels.bits import pack
from thinwire.wire import payload

from ..helpers import random, same_bits

SIZES = (300, 40, 660)


def decode(codec: LeaderPositions, x: Tensor) -> LeaderSparse:
    decoded = payload.decode_lazy(payload.encode(x, codec, 3), codec, 3, x)
    assert isinstance(decoded, LeaderSparse)
    return decoded


@pytest.mark.parametrize("order", ORDERS)
def test_each_layer_sends_its_own_largest_entries(order: str) -> None:
    x = random(1000) * torch.repeat_interleave(torch.tensor([1.0, 1e-3, 1e3]), torch.tensor(SIZES))
    decoded = decode(LeaderPositions(0.05, least=4, order=order, sizes=SIZES), x)
    counts, start = (15, 4, 33), 0
    for size, count, where in zip(SIZES, counts, torch.split(decoded.where, counts), strict=True):
        layer = x[start : start + size]
        largest = layer.abs().topk(count)
        assert set((where - start).tolist()) == set(largest.indices.tolist())
        values = x[where]
        if order == "value":
            assert (values.diff() >= 0).all()
        elif order == "magnitude":
            assert (values.abs().diff() <= 0).all()
        else:
            assert (where.diff() > 0).all()
        torch.testing.assert_close(decoded.dense()[where], values.square().mean().sqrt().expand(count))
        start += size
    assert int((decoded.dense() != 0).sum()) == sum(counts)


@pytest.mark.parametrize("order", ORDERS)
def test_a_decoded_payload_can_be_forwarded_to_the_bit(order: str) -> None:
    # A parameter server does that.
    codec, x = LeaderPositions(0.1, order=order, sizes=SIZES), random(1000)
    sent = payload.encode(x, codec, 3)
    assert same_bits(payload.encode(decode(codec, x), codec, 3), sent)


def test_positions_take_little_more_than_the_entropy() -> None:
    x, count = random(100_000), 1000
    as_a_set, in_order = (
        8 * len(payload.encode(x, LeaderPositions(0.01, order=order), 3)) / count for order in ("index", "value")
    )
    entropy = 8.07  # bits per position, for 1,000 of 100,000: the logarithm of the number of sets
    assert entropy < as_a_set < entropy + 0.6
    assert 16.6 < in_order < 17.1  # the logarithm of 100,000, rounded up


def test_a_layer_with_fewer_entries_than_requested_sends_all() -> None:
    assert decode(LeaderPositions(0.001, least=10), random(7)).where.tolist() == list(range(7))
    assert LeaderPositions(0.001).counts(0) == [0]


def test_scales_of_large_and_small_entries_are_finite_and_positive() -> None:
    for size in (1e-30, 1e30):
        decoded = decode(LeaderPositions(0.1), random(100) * size)
        assert decoded.bound() > 0
        assert materialize(decoded).isfinite().all()


@pytest.mark.parametrize("order", ["value", "magnitude"])
@pytest.mark.parametrize("invalid", [[3, 3, 1], [9, 1, 2]], ids=["twice", "beyond"])
def test_invalid_positions_raise(order: str, invalid: list[int]) -> None:
    codec = LeaderPositions(0.1, least=3, order=order)
    scales, coded, like = codec.encode((random(9),), 0)
    hostile = pack(torch.tensor(invalid), 4)
    assert hostile.shape == coded.shape
    with pytest.raises(PayloadError, match="twice" if 3 in invalid else "position 9 is outside a layer of 9 entries"):
        codec.decode((scales, hostile, like), 0)


def test_a_wrong_number_of_scales_or_bytes_raises() -> None:
    codec, x = LeaderPositions(0.1, order="value"), random(100)
    scales, coded, like = codec.encode((x,), 0)
    for wrong in ((scales.repeat(2), coded, like), (scales, coded[:-1], like), (scales, coded.to(torch.int16), like)):
        with pytest.raises(PayloadError):
            codec.decode(wrong, 0)


def test_the_bytes_are_frozen() -> None:
    x = torch.tensor([0.5, -4.0, 1.0, 3.0, -0.25, 2.0, 0.125, -1.5])
    sent = {
        order: bytes(payload.encode(x, LeaderPositions(0.1, least=3, order=order), 0).tolist()).hex()
        for order in ORDERS
    }
    # The root of 29 / 3, then positions 1, 3, 5: as a bitmap; from the lowest value, 3 bits each; from the largest.
    assert sent == {"index": "edfb46402a", "value": "edfb46403502", "magnitude": "edfb46401d04"}


def test_an_invalid_setting_is_an_error() -> None:
    for wrong, message in (
        (lambda: LeaderPositions(0.0), "between 0 and 1"),
        (lambda: LeaderPositions(0.1, least=0), "1 position per layer or more"),
        (lambda: LeaderPositions(0.1, order="size"), "'index', 'value', 'magnitude', not 'size'"),
    ):
        with pytest.raises(ValueError, match=message):
            wrong()
