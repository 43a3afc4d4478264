"""Writes CIFAR-10 batches as Python 2 did: protocol 2, byte strings, a memo of every object, NumPy's old names."""

import struct
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any


def batch_pickle(
    label: str | bytes,
    labels: Sequence[int],
    data: Any,  # of bytes: an array
    filenames: Sequence[str | bytes],
    dtype: str = "u1",
    by_columns: bool = False,
) -> bytes:
    """The dictionary of a batch, as cPickle wrote it."""
    numbers = count(1)

    def put() -> bytes:
        number = next(numbers)
        return b"q" + bytes([number]) if number < 256 else b"r" + struct.pack("<I", number)

    def text(value: str | bytes) -> bytes:
        raw = value.encode("latin-1") if isinstance(value, str) else value
        head = b"U" + bytes([len(raw)]) if len(raw) < 256 else b"T" + struct.pack("<i", len(raw))
        return head + raw + put()

    def number(value: int) -> bytes:
        if 0 <= value < 256:
            return b"K" + bytes([value])
        return b"M" + struct.pack("<H", value) if 0 <= value < 65536 else b"J" + struct.pack("<i", value)

    def listed(items: Sequence[Any], write: Callable[[Any], bytes]) -> bytes:
        out = b"]" + put()
        for start in range(0, len(items), 1000):
            out += b"(" + b"".join(write(item) for item in items[start : start + 1000]) + b"e"
        return out

    def array() -> bytes:
        out = b"cnumpy.core.multiarray\n_reconstruct\n" + put() + b"cnumpy\nndarray\n" + put()
        out += number(0) + b"\x85" + put() + text("b") + b"\x87" + put() + b"R" + put()
        out += b"(" + number(1) + b"".join(number(length) for length in data.shape) + b"\x86" + put()
        out += b"cnumpy\ndtype\n" + put() + text(dtype) + number(0) + number(1) + b"\x87" + put() + b"R" + put()
        out += b"(" + number(3) + text("|") + b"NNN" + number(-1) + number(-1) + number(0) + b"t" + put() + b"b"
        out += (b"\x88" if by_columns else b"\x89") + text(data.tobytes("F" if by_columns else "C"))
        return out + b"t" + put() + b"b"

    out = b"\x80\x02}" + put() + b"("
    out += text("batch_label") + text(label)
    out += text("labels") + listed(labels, number)
    out += text("data") + array()
    out += text("filenames") + listed(filenames, text)
    return out + b"u."
