"""Quantizers: encoding a message of 24.6 million entries, and adding it to a sum, against copying the tensor once.

This is the work of a rank: the buffer to send is allocated each time, and a received message is added to the sum
without being materialized.
"""

from collections.abc import Callable

import torch

from benchmarks.rows import Row, at_most
from benchmarks.timing import interleaved, threads_of_torch
from thinwire import Dither, ExponentialDither, NaturalCompression, Quantize, Round, Sign, Ternary
from thinwire.core.lazy import Lazy
from thinwire.extend import Codec
from thinwire.wire import payload

SIZE = 24_600_000
ENCODE_TARGETS: dict[Codec, float | None] = {  # the maximum number of copies
    Quantize(8): 2.0,
    Quantize(8, stochastic=True): 2.8,
    Quantize(4): None,
    Quantize(4, stochastic=True): 2.8,
    Quantize(2): None,
    Ternary(): 2.0,
    Sign(): 1.0,
    Dither(7): 2.8,
    Dither(7, norm="max", block=512): 2.8,
    Dither(127): 2.8,
    ExponentialDither(): 2.8,
    ExponentialDither(3): None,
    ExponentialDither(levels=3): None,
    NaturalCompression(): 2.8,
    Round(): 2.0,
}
ADD_TARGET = 1.2
ADDED: tuple[Codec, ...] = (
    Quantize(8),
    Quantize(4),
    Quantize(2),
    Ternary(),
    Sign(),
    Dither(7),
    ExponentialDither(),
    NaturalCompression(),
)


def run(repeats: int = 15) -> list[Row]:
    rows = []
    for threads in (1, 2):
        with threads_of_torch(threads):
            rows += _rows(threads, repeats)
    return rows


def _rows(threads: int, repeats: int) -> list[Row]:
    x = torch.randn(SIZE, generator=torch.Generator().manual_seed(0))
    target, total = torch.empty_like(x), torch.zeros_like(x)

    def encode(codec: Codec) -> Callable[[], object]:
        return lambda: payload.encode(x, codec, 0)

    def add(codec: Codec) -> Callable[[], object]:
        buffer = payload.encode(x, codec, 0).clone()

        def job() -> None:
            received = payload.decode_lazy(buffer, codec, 0, x)
            assert isinstance(received, Lazy)
            received.add_to(total)

        return job

    jobs: dict[str, Callable[[], object]] = {"copy": lambda: target.copy_(x)}
    jobs |= {f"{codec!r}, a message": encode(codec) for codec in ENCODE_TARGETS}
    jobs |= {f"{codec!r}, added to a sum": add(codec) for codec in ADDED}
    targets: dict[str, float | None] = {f"{codec!r}, a message": target for codec, target in ENCODE_TARGETS.items()}
    targets |= {f"{codec!r}, added to a sum": ADD_TARGET for codec in ADDED}
    best = interleaved(jobs, repeats)
    copies = {name: seconds / best["copy"] for name, seconds in best.items() if name != "copy"}
    on = f"{threads} thread{'s' * (threads > 1)}"
    return [
        Row(f"{name}, {on} / copy", ratio, "" if (limit := targets[name]) is None else at_most(ratio, limit))
        for name, ratio in copies.items()
    ]
