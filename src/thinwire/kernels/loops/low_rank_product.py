"""Products with low-rank factors; the twins are in kernels/low_rank_product.py.

Matrices are read row after row, as they lie in memory: several rows at once would take fewer instructions, but memory
bandwidth is the limit. So the first factor's pass over a few rows loads them into the cache, and the other factors
follow. Arrays are of 32 bits and contiguous.
"""

import numpy as np
from numpy.typing import NDArray

from .jit import compiled

Array = NDArray[np.float32]
Bits = NDArray[np.int32]

# Sums may be reordered, as the order depends on the shape only; NaN and infinity are kept.
ANY_ORDER = frozenset({"reassoc", "contract", "nsz"})
TINY = np.finfo(np.float32).tiny
BLOCK = 4  # rows that stay in the cache together; the unrolled loops below rely on it


@compiled(ANY_ORDER)
def dots(factor: Array, matrix: Array, out: Array) -> None:
    """out = factor @ matrix.T"""
    rank = len(factor)
    for i in range(len(matrix)):
        row = matrix[i]
        k = 0
        while k < rank:
            f = factor[k]
            a = np.float32(0)
            if 0 < k <= rank - 3:
                g, h = factor[k + 1], factor[k + 2]
                b = c = np.float32(0)
                for j in range(len(row)):
                    a += row[j] * f[j]
                    b += row[j] * g[j]
                    c += row[j] * h[j]
                out[k, i], out[k + 1, i], out[k + 2, i] = a, b, c
                k += 3
            else:
                for j in range(len(row)):
                    a += row[j] * f[j]
                out[k, i] = a
                k += 1


@compiled(ANY_ORDER)
def sums(weights: Array, matrix: Array, out: Array) -> None:
    """out = weights @ matrix"""
    rank, height = weights.shape
    out[:] = 0
    whole = height - height % BLOCK
    for start in range(0, whole, BLOCK):
        o = out[0]
        for i in range(start, start + BLOCK):
            row, w = matrix[i], weights[0, i]
            for j in range(len(row)):
                o[j] += w * row[j]
        r0, r1, r2, r3 = matrix[start], matrix[start + 1], matrix[start + 2], matrix[start + 3]
        k = 1
        while k < rank:
            o, w = out[k], weights[k, start : start + BLOCK]
            a0, a1, a2, a3 = w[0], w[1], w[2], w[3]
            if k <= rank - 3:
                p, w = out[k + 1], weights[k + 1, start : start + BLOCK]
                b0, b1, b2, b3 = w[0], w[1], w[2], w[3]
                q, w = out[k + 2], weights[k + 2, start : start + BLOCK]
                c0, c1, c2, c3 = w[0], w[1], w[2], w[3]
                for j in range(len(o)):
                    o[j] += a0 * r0[j] + a1 * r1[j] + a2 * r2[j] + a3 * r3[j]
                    p[j] += b0 * r0[j] + b1 * r1[j] + b2 * r2[j] + b3 * r3[j]
                    q[j] += c0 * r0[j] + c1 * r1[j] + c2 * r2[j] + c3 * r3[j]
                k += 3
            else:
                for j in range(len(o)):
                    o[j] += a0 * r0[j] + a1 * r1[j] + a2 * r2[j] + a3 * r3[j]
                k += 1
    for i in range(whole, height):
        row = matrix[i]
        for k in range(rank):
            o, w = out[k], weights[k, i]
            for j in range(len(row)):
                o[j] += w * row[j]


@compiled()
def _four_by_four(left: Array, right: Array, first: bool, out: Array) -> None:
    """Write (if `first`) or add the product of four rows of each factor to four rows of `out`."""
    a0, b0, c0, d0 = left[0, 0], left[0, 1], left[0, 2], left[0, 3]
    a1, b1, c1, d1 = left[1, 0], left[1, 1], left[1, 2], left[1, 3]
    a2, b2, c2, d2 = left[2, 0], left[2, 1], left[2, 2], left[2, 3]
    a3, b3, c3, d3 = left[3, 0], left[3, 1], left[3, 2], left[3, 3]
    r0, r1, r2, r3 = right[0], right[1], right[2], right[3]
    a, b, c, d = out[0], out[1], out[2], out[3]
    if first:
        for j in range(len(r0)):
            a[j] = a0 * r0[j] + a1 * r1[j] + a2 * r2[j] + a3 * r3[j]
            b[j] = b0 * r0[j] + b1 * r1[j] + b2 * r2[j] + b3 * r3[j]
            c[j] = c0 * r0[j] + c1 * r1[j] + c2 * r2[j] + c3 * r3[j]
            d[j] = d0 * r0[j] + d1 * r1[j] + d2 * r2[j] + d3 * r3[j]
    else:
        for j in range(len(r0)):
            a[j] = a[j] + a0 * r0[j] + a1 * r1[j] + a2 * r2[j] + a3 * r3[j]
            b[j] = b[j] + b0 * r0[j] + b1 * r1[j] + b2 * r2[j] + b3 * r3[j]
            c[j] = c[j] + c0 * r0[j] + c1 * r1[j] + c2 * r2[j] + c3 * r3[j]
            d[j] = d[j] + d0 * r0[j] + d1 * r1[j] + d2 * r2[j] + d3 * r3[j]


@compiled()
def _block(left: Array, right: Array, start: int, out: Array) -> None:
    """len(out) rows of the product, from row `start` on."""
    rank, k = len(left), 0
    if len(out) == BLOCK:
        while k + 4 <= rank:
            _four_by_four(left[k : k + 4, start : start + BLOCK], right[k : k + 4], k == 0, out)
            k += 4
    for i in range(len(out)):
        row = out[i]
        for m in range(k, rank):
            a, r = left[m, start + i], right[m]
            if m == 0:
                for j in range(len(row)):
                    row[j] = a * r[j]
            else:
                for j in range(len(row)):
                    row[j] += a * r[j]


@compiled()
def product(left: Array, right: Array, out: Array) -> None:
    """out = left.T @ right"""
    for start in range(0, len(out), BLOCK):
        _block(left, right, start, out[start : start + BLOCK])


@compiled()
def add_rest(x: Array, decay: np.float32, total: Array, left: Array, right: Array, out: Array) -> None:
    """out = x + decay * (total - left.T @ right)"""
    height, width = out.shape
    if len(left) == 1:
        r = right[0]
        for i in range(height):
            xs, ts, os, a = x[i], total[i], out[i], left[0, i]
            for j in range(width):
                os[j] = xs[j] + decay * (ts[j] - a * r[j])
        return
    block = np.empty((BLOCK, width), np.float32)
    for start in range(0, height, BLOCK):
        rows = block[: min(BLOCK, height - start)]
        _block(left, right, start, rows)
        for i in range(len(rows)):
            xs, ts, os, ps = x[start + i], total[start + i], out[start + i], rows[i]
            for j in range(width):
                os[j] = xs[j] + decay * (ts[j] - ps[j])


@compiled()
def renewed(factor: Array, bits: Bits, last: Array, out: Array, bits_of_out: Bits) -> None:
    """Scale each row to maximum magnitude 1; for a row of zeros, that of `last`. `bits` is a view of `factor`."""
    for k in range(len(factor) if factor.size else 0):
        row, bits_of_row, kept, new = factor[k], bits[k], last[k], out[k]
        most = np.int32(0)  # without the sign, bits are ordered as magnitudes are, and NaN is the largest
        for j in range(len(bits_of_row)):
            most = max(most, np.int32(bits_of_row[j] & np.int32(0x7FFFFFFF)))
        bits_of_out[k, 0] = most
        size = new[0]
        if size > 0:
            divisor = max(size, TINY)
            for j in range(len(row)):
                new[j] = row[j] / divisor
        else:
            for j in range(len(row)):
                new[j] = kept[j]
