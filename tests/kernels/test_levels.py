"""Rounding to levels, norms and decoding: compiled loops and twins agree to the bit."""

from itertools import product
from math import inf

import pytest
import torch
from torch import Tensor

from thinwire import Dither, ExponentialDither, NaturalCompression, Round
from thinwire.codecs.leveled import powers
from thinwire.core.lazy import Lazy
from thinwire.extend import Codec
from thinwire.kernels.norms import norms
from thinwire.kernels.quantization import dithered, in_powers, leveled, scales_of

from ..helpers import random, same_bits
from .test_quantization import every_kind, vector
from .twins import THREADS, on_threads, with_twins

SIZES = (0, 1, 7, 1001, 10_007)
BLOCKS = (3, 512, 2**15)
KEY = 2**32 - 5
CODECS = (
    Dither(7),
    Dither(3, norm="max", block=100),
    Dither(100, norm=2),
    ExponentialDither(),
    ExponentialDither(2, levels=3, block=64),
    ExponentialDither(2, levels=1, norm=2),
    ExponentialDither(3, levels=5),
    ExponentialDither(1.5, levels=60),
    NaturalCompression(),
    Round(),
)


@every_kind
@pytest.mark.parametrize("power", [2, inf])
def test_loops_and_twins_compute_the_same_norms(kind: str, power: float) -> None:
    for size, block in product((*SIZES, 40_009), BLOCKS):
        x = vector(kind, size)
        expected = with_twins(lambda: norms(x, block, power))  # noqa: B023
        for threads in THREADS:
            with on_threads(threads):
                assert same_bits(norms(x, block, power), expected), (size, block, threads)


def test_norms_match_torch() -> None:
    for size, block in product(SIZES[1:], BLOCKS):
        x = random(size)
        for power in (1.0, 1.5, 2.0, 3.0, inf):
            expected = [part.double().norm(power) for part in x.split(block)]
            torch.testing.assert_close(norms(x, block, power).double(), torch.stack(expected), rtol=1e-6, atol=0)


def test_norms_do_not_overflow_in_intermediate_results() -> None:
    x = torch.tensor([3e38, -1e38, 1e-38])
    for power in (1.5, 2.0, inf):
        assert float(norms(x, 3, power)) == pytest.approx(float(x.double().norm(power)), rel=1e-6)


@every_kind
def test_loops_and_twins_round_to_the_same_levels(kind: str) -> None:
    table = powers(3, 5)
    for size, block in product(SIZES, BLOCKS):
        x = vector(kind, size)
        scale = scales_of(norms(x, block, inf), 1)

        def encoded(x: Tensor = x, scale: Tensor = scale, block: int = block) -> list[Tensor]:
            return [
                dithered(x, scales_of(scale, 5), 4, block, 5, KEY),
                dithered(x, scales_of(scale, 3), 3, block, 3, KEY),
                leveled(x, scale, 4, block, table, KEY),
                leveled(x, scale, 7, block, powers(1.2, 50), KEY),
                *(
                    in_powers(x, scale, bits, block, 2 ** (bits - 1) - 1, key)
                    for bits in (2, 3, 8)
                    for key in (None, KEY)
                ),
            ]

        plain = with_twins(encoded)
        for threads in THREADS:
            with on_threads(threads):
                assert all(map(same_bits, encoded(), plain)), (size, block, threads)


@pytest.mark.parametrize("codec", CODECS, ids=repr)
def test_loops_and_twins_decode_to_the_same_bits(codec: Codec) -> None:
    for size in SIZES:
        x, total = random(size), random(size, seed=1)
        parts = codec.encode((x,), 3)

        def decoded(parts: tuple[Tensor, ...] = parts, x: Tensor = x, total: Tensor = total) -> list[Tensor]:
            lazy, _ = codec.decode_lazy(parts, 3)
            assert isinstance(lazy, Lazy)
            added, out = total.clone(), torch.empty_like(x)
            lazy.add_to(added, 0.3)
            lazy.add_rest(x, 0.7, total, out)
            return [lazy.dense(), added, out, lazy.times(0.5).dense()]  # type: ignore[union-attr]  # it stays lazy

        plain = with_twins(decoded)
        for threads in THREADS:
            with on_threads(threads):
                assert all(map(same_bits, decoded(), plain)), (size, threads)
