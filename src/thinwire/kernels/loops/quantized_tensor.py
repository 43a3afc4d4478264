"""Quantized tensors, written or added in one pass; the twins are in kernels/quantized_tensor.py.

A code stands for (a * code + b) * scale (uniform), or for a number of a table times the scale (levels), with a scale
per block. Codes lie in lanes. Entries are processed in their order, so that threads can process different ranges.
"""

import numpy as np
from numpy.typing import NDArray

from .jit import compiled

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]


@compiled()
def write_uniform(
    packed: Bytes,
    bits: int,
    a: np.float32,
    b: np.float32,
    scale: Floats,
    block: int,
    start: int,
    stop: int,
    out: Floats,
) -> None:
    """Write the entries from `start` to `stop`."""
    rows, mask = len(packed), np.uint8((1 << bits) - 1)
    entry = start
    while entry < stop:
        lane, k = entry // rows, entry // block
        to = out[entry : min(stop, (lane + 1) * rows, (k + 1) * block)]
        some, down, step = packed[entry - lane * rows :][: len(to)], (lane * bits) & 7, scale[k]
        for i in range(len(to)):
            to[i] = (np.float32(np.int32((some[i] >> down) & mask)) * a + b) * step
        entry += len(to)


@compiled()
def add_uniform(
    packed: Bytes,
    bits: int,
    a: np.float32,
    b: np.float32,
    scale: Floats,
    block: int,
    start: int,
    stop: int,
    weight: np.float32,
    out: Floats,
) -> None:
    """Add the entries from `start` to `stop`, times a weight."""
    rows, mask = len(packed), np.uint8((1 << bits) - 1)
    entry = start
    while entry < stop:
        lane, k = entry // rows, entry // block
        to = out[entry : min(stop, (lane + 1) * rows, (k + 1) * block)]
        some, down, step = packed[entry - lane * rows :][: len(to)], (lane * bits) & 7, scale[k]
        for i in range(len(to)):
            to[i] += (np.float32(np.int32((some[i] >> down) & mask)) * a + b) * step * weight
        entry += len(to)


@compiled()
def add_rest_of_uniform(
    packed: Bytes,
    bits: int,
    a: np.float32,
    b: np.float32,
    scale: Floats,
    block: int,
    start: int,
    stop: int,
    x: Floats,
    decay: np.float32,
    total: Floats,
    out: Floats,
) -> None:
    """out = x + decay * (total - entry), for the entries from `start` to `stop`"""
    rows, mask = len(packed), np.uint8((1 << bits) - 1)
    entry = start
    while entry < stop:
        lane, k = entry // rows, entry // block
        to = out[entry : min(stop, (lane + 1) * rows, (k + 1) * block)]
        some, down, step = packed[entry - lane * rows :][: len(to)], (lane * bits) & 7, scale[k]
        xs, ts = x[entry : entry + len(to)], total[entry : entry + len(to)]
        for i in range(len(to)):
            decoded = (np.float32(np.int32((some[i] >> down) & mask)) * a + b) * step
            to[i] = xs[i] + decay * (ts[i] - decoded)
        entry += len(to)


@compiled()
def write_levels(
    packed: Bytes, bits: int, table: Floats, scale: Floats, block: int, start: int, stop: int, out: Floats
) -> None:
    """Write the entries from `start` to `stop`."""
    rows, mask = len(packed), np.uint8((1 << bits) - 1)
    entry = start
    while entry < stop:
        lane, k = entry // rows, entry // block
        to = out[entry : min(stop, (lane + 1) * rows, (k + 1) * block)]
        some, down, step = packed[entry - lane * rows :][: len(to)], (lane * bits) & 7, scale[k]
        for i in range(len(to)):
            to[i] = table[(some[i] >> down) & mask] * step
        entry += len(to)


@compiled()
def add_levels(
    packed: Bytes,
    bits: int,
    table: Floats,
    scale: Floats,
    block: int,
    start: int,
    stop: int,
    weight: np.float32,
    out: Floats,
) -> None:
    """Add the entries from `start` to `stop`, times a weight."""
    rows, mask = len(packed), np.uint8((1 << bits) - 1)
    entry = start
    while entry < stop:
        lane, k = entry // rows, entry // block
        to = out[entry : min(stop, (lane + 1) * rows, (k + 1) * block)]
        some, down, step = packed[entry - lane * rows :][: len(to)], (lane * bits) & 7, scale[k]
        for i in range(len(to)):
            to[i] += table[(some[i] >> down) & mask] * step * weight
        entry += len(to)


@compiled()
def add_rest_of_levels(
    packed: Bytes,
    bits: int,
    table: Floats,
    scale: Floats,
    block: int,
    start: int,
    stop: int,
    x: Floats,
    decay: np.float32,
    total: Floats,
    out: Floats,
) -> None:
    """out = x + decay * (total - entry), for the entries from `start` to `stop`"""
    rows, mask = len(packed), np.uint8((1 << bits) - 1)
    entry = start
    while entry < stop:
        lane, k = entry // rows, entry // block
        to = out[entry : min(stop, (lane + 1) * rows, (k + 1) * block)]
        some, down, step = packed[entry - lane * rows :][: len(to)], (lane * bits) & 7, scale[k]
        xs, ts = x[entry : entry + len(to)], total[entry : entry + len(to)]
        for i in range(len(to)):
            to[i] = xs[i] + decay * (ts[i] - table[(some[i] >> down) & mask] * step)
        entry += len(to)
