"""What codes stand for, written, added or taken away without being written out; the twins are in coded.py above.

A code of few bits stands for (a * code + b) * scale, or for a number of a table times a scale, with a scale for each
block. Codes lie in lanes, and entries are taken in their order, so that several threads may take different ones.
"""

import numpy as np
from numpy.typing import NDArray

from .jit import compiled

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]


@compiled()
def write_coded(
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
    """Write the entries from one to another."""
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
def add_coded(
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
    """Add the entries from one to another, times a weight."""
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
def add_rest_of_coded(
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
    """out = x + decay * (total - entry), for the entries from one to another"""
    rows, mask = len(packed), np.uint8((1 << bits) - 1)
    entry = start
    while entry < stop:
        lane, k = entry // rows, entry // block
        to = out[entry : min(stop, (lane + 1) * rows, (k + 1) * block)]
        some, down, step = packed[entry - lane * rows :][: len(to)], (lane * bits) & 7, scale[k]
        xs, ts = x[entry : entry + len(to)], total[entry : entry + len(to)]
        for i in range(len(to)):
            said = (np.float32(np.int32((some[i] >> down) & mask)) * a + b) * step
            to[i] = xs[i] + decay * (ts[i] - said)
        entry += len(to)


@compiled()
def write_levels(
    packed: Bytes, bits: int, table: Floats, scale: Floats, block: int, start: int, stop: int, out: Floats
) -> None:
    """Write the entries from one to another."""
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
    """Add the entries from one to another, times a weight."""
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
    """out = x + decay * (total - entry), for the entries from one to another"""
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
