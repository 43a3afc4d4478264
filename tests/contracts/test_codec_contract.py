"""The contract of codecs, checked for all of them."""

import math
from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor

from thinwire.core.lazy import DeferredDifference, Lazy, copy_, materialize, residual_after, zero_where
from thinwire.extend import Codec
from thinwire.wire import payload

from ..helpers import random, same_bits
from .table import CODECS, LOSSLESS

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
SHAPES = ((), (0,), (1,), (7,), (3, 5), (2, 3, 4, 5), (0, 3), (600,))

# Tensors that are not contiguous.
LAYOUTS: dict[str, Callable[[torch.dtype], Tensor]] = {
    "transposed": lambda dtype: random(5, 3, dtype=dtype).T,
    "strided": lambda dtype: random(14, dtype=dtype)[::2],
    "one of several": lambda dtype: random(2, dtype=dtype)[::2],
    "none of several": lambda dtype: random(2, dtype=dtype)[:0:2],
    "expanded": lambda dtype: random(1, dtype=dtype).expand(9),
    "channels last": lambda dtype: random(2, 3, 4, 5, dtype=dtype).to(memory_format=torch.channels_last),
    "offset": lambda dtype: random(30, dtype=dtype)[1:],
}

every_codec = pytest.mark.parametrize("codec", CODECS, ids=repr)
linear_codecs = pytest.mark.parametrize("codec", [c for c in CODECS if c.linear], ids=repr)
fixed_codecs = pytest.mark.parametrize("codec", [c for c in CODECS if not c.variable], ids=repr)


def is_stochastic(codec: Codec) -> bool:
    return codec.zeta(10**6) not in (None, 1.0)


def through(codec: Codec, x: Tensor, seed: int = 3) -> Tensor:
    """`x` as the peers decode it."""
    return payload.decode(payload.encode(x, codec, seed), codec, seed, x)


@every_codec
def test_decode_returns_the_shape_and_dtype(codec: Codec) -> None:
    for dtype, shape in product(DTYPES, SHAPES):
        x = random(*shape, dtype=dtype)
        decoded = codec.decode(codec.encode((x,), 3), 3)
        assert len(decoded) == 1
        for y in (*decoded, through(codec, x)):
            assert (y.shape, y.dtype, y.device) == (x.shape, x.dtype, x.device)


@every_codec
def test_the_payload_does_not_depend_on_the_memory_layout(codec: Codec) -> None:
    for dtype, (layout, build) in product(DTYPES, LAYOUTS.items()):
        x = build(dtype)
        plain = x.clone(memory_format=torch.contiguous_format)
        encoded, expected = payload.encode(x, codec, 3), payload.encode(plain, codec, 3)
        # Up to rounding: a sum over the same numbers in another order may differ in its last bit.
        decoded, expected_decoded = payload.decode(encoded, codec, 3, x), payload.decode(expected, codec, 3, plain)
        torch.testing.assert_close(decoded, expected_decoded, msg=lambda why, layout=layout: f"{layout}: {why}")
        assert len(encoded) == len(expected) or codec.variable, layout


@every_codec
def test_the_same_seed_gives_the_same_bytes(codec: Codec) -> None:
    x = random(6, 7)
    first, second = (payload.encode(x, codec, 3) for _ in range(2))
    assert same_bits(first, second)
    assert same_bits(payload.decode(first, codec, 3, x), payload.decode(second, codec, 3, x))


@every_codec
def test_encode_does_not_modify_its_input(codec: Codec) -> None:
    for dtype in DTYPES:
        x = random(6, 7, dtype=dtype)
        before = x.clone()
        codec.encode((x,), 3)
        payload.encode(x, codec, 3)
        assert same_bits(x, before), dtype


@every_codec
def test_decode_does_not_modify_the_buffer(codec: Codec) -> None:
    # Simulated ranks decode the same buffer, one after the other.
    x = random(6, 7)
    buffer = payload.encode(x, codec, 3).clone()
    before = buffer.clone()
    payload.decode(buffer, codec, 3, x)
    assert same_bits(buffer, before)


@every_codec
def test_the_global_generator_is_not_used(codec: Codec) -> None:
    # A codec that reseeded it would give every rank the same dropout from then on.
    before = torch.get_rng_state()
    through(codec, random(6, 7))
    assert torch.equal(torch.get_rng_state(), before)


@fixed_codecs
def test_a_fixed_layout_depends_on_shape_and_dtype_only(codec: Codec) -> None:
    for dtype, shape in product(DTYPES, SHAPES):
        x = random(*shape, dtype=dtype)
        zeros, large = torch.zeros_like(x), torch.full_like(x, torch.finfo(dtype).max / 4)
        for value in (x, zeros, large, -large, x / 1e4):
            assert payload.encode(value, codec, 3).numel() == payload.encoded_bytes(codec, x), (dtype, shape)


@every_codec
def test_the_declared_size_is_none_only_for_variable_codecs(codec: Codec) -> None:
    assert (payload.encoded_bytes(codec, random(6, 7)) is None) == codec.variable


@every_codec
def test_no_part_is_int64(codec: Codec) -> None:
    # Positions and counts fit in fewer bits; eight bytes per entry would outweigh the compression.
    for x in (random(6, 7), random(6, 7, dtype=torch.float64), torch.zeros(6, 7)):
        assert torch.int64 not in {part.dtype for part in codec.encode((x,), 3)}


@every_codec
def test_zeros_decode_to_zeros(codec: Codec) -> None:
    for dtype in DTYPES:
        x = torch.zeros(5, 9, dtype=dtype)
        assert torch.equal(through(codec, x), x), dtype


@every_codec
def test_nan_decodes_to_nan(codec: Codec) -> None:
    # This is how ranks learn that another rank's gradient is non-finite.
    for dtype, size in product(DTYPES, (1, 45, 600)):
        assert through(codec, torch.full((size,), math.nan, dtype=dtype)).isnan().any(), (dtype, size)


@pytest.mark.parametrize("codec", LOSSLESS, ids=repr)
def test_lossless_codecs_are_exact_to_the_bit(codec: Codec) -> None:
    for dtype in DTYPES:
        info = torch.finfo(dtype)
        largest = (info.max, info.min, info.tiny, info.smallest_normal / 2)
        odd = torch.tensor([0.0, math.inf, -math.inf, math.nan, *largest])
        x = torch.cat([odd.to(dtype), random(21, dtype=dtype), torch.zeros(40, dtype=dtype)])
        assert same_bits(through(codec, x), x), dtype


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@linear_codecs
def test_the_signal_of_a_sum_is_the_sum_of_the_signals(codec: Codec, dtype: torch.dtype) -> None:
    a, b = random(6, 7, seed=1, dtype=dtype), random(6, 7, seed=2, dtype=dtype)
    (of_a, *side), (of_b, *_), (of_sum, *_) = (codec.encode((x,), 3) for x in (a, b, a + b))
    assert all(part.is_meta for part in side), (
        "a linear codec must not send side information, which could not be summed"
    )
    coarsest = max(torch.finfo(of_a.dtype).eps, torch.finfo(dtype).eps)
    torch.testing.assert_close(of_a.double() + of_b.double(), of_sum.double(), rtol=0, atol=8 * coarsest)
    decoded = codec.decode((of_a + of_b, *side), 3)[0]
    torch.testing.assert_close(
        decoded.double(), through(codec, a).double() + through(codec, b).double(), rtol=0, atol=8 * coarsest
    )


@pytest.mark.parametrize("codec", [c for c in CODECS if not is_stochastic(c)], ids=repr)
def test_the_error_never_exceeds_the_input(codec: Codec) -> None:
    # Otherwise the residual of error feedback could grow without bound.
    for seed in range(20):
        for scale in (1.0, 1e-3, 1e3):
            x = random(37, 11, seed=seed) * scale
            error = (x.double() - through(codec, x, seed).double()).square().sum()
            assert error <= x.double().square().sum() * (1 + 1e-6)


def test_the_table_has_linear_variable_and_stochastic_codecs() -> None:
    # With an empty list of parameters, the tests above would pass.
    assert {type(c).__name__ for c in CODECS if c.linear} >= {"Identity", "Cast", "RandomK", "Chain"}
    assert {type(c).__name__ for c in CODECS if c.variable} >= {"Nonzero", "Entropy", "Chain"}
    assert [c for c in CODECS if is_stochastic(c)]


@every_codec
def test_lazy_tensors_equal_materialized_ones(codec: Codec) -> None:
    """Selecting from sums, decoding, adding and subtracting give the same as with materialized tensors."""
    for dtype, shape in product(DTYPES, ((), (7,), (3, 5), (600,))):
        x, rest = random(*shape, dtype=dtype), random(*shape, seed=1, dtype=dtype)
        out, total = torch.empty_like(x), torch.mul(rest, 0.5).add_(x)
        picked = codec.pick(x, DeferredDifference(rest), 0.5, out)
        assert same_bits(out, total)
        encoded, expected = payload.encode(picked, codec, 3), payload.encode(total, codec, 3)
        assert same_bits(encoded, expected)
        decoded, dense = payload.decode_lazy(encoded, codec, 3, x), payload.decode(expected, codec, 3, x)
        assert (decoded.shape, decoded.dtype) == (x.shape, x.dtype)
        assert same_bits(materialize(decoded), dense)
        target = torch.full_like(x, 9)
        copy_(target, decoded)
        assert same_bits(target, dense)
        assert same_bits(materialize(residual_after(total.clone(), decoded)), total - dense)
        if isinstance(decoded, Lazy):
            added = total.clone()
            decoded.add_to(added)
            assert torch.equal(added, total + dense)
            decoded.add_to(added, 0.25)
            assert torch.equal(added, total + dense + dense * 0.25)
            assert decoded.bound() >= float(dense.abs().max())
        masked = total.clone()
        zero_where(masked, decoded)
        assert torch.equal(masked, total * (dense == 0))
