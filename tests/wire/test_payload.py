"""Payloads are untrusted: any bytes give a tensor as agreed or a PayloadError, with bounded memory."""

import random as python_random
import struct
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from thinwire import (
    Cast,
    Chain,
    Entropy,
    Histogram,
    Huffman,
    Identity,
    Nonzero,
    PayloadError,
    Quantize,
    Rans,
    Sign,
    Ternary,
    TopK,
)
from thinwire.codecs.entropy import PLANES
from thinwire.entropy.block import compress
from thinwire.extend import Codec
from thinwire.wire import payload

from ..contracts.table import CODECS
from ..helpers import random, same_bits

MUTANTS = 2000  # per codec, and as many with a valid checksum for codecs that have one
HEADER = struct.Struct("<2sBBII")
SEED = 3
FLOAT32, UINT8, INT8 = 8, 1, 2  # codes of types on the wire
OUTLINE, AGREED = 0x10, 0x20

every_codec = pytest.mark.parametrize("codec", CODECS, ids=repr)
fixed_codecs = pytest.mark.parametrize("codec", [c for c in CODECS if not c.variable], ids=repr)
variable_codecs = pytest.mark.parametrize("codec", [c for c in CODECS if c.variable], ids=repr)


def as_tensor(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)


def as_bytes(buffer: Tensor) -> bytes:
    return buffer.numpy().tobytes()


def with_header(body: bytes, parts: int, magic: bytes = b"TW", version: int = 1) -> bytes:
    """A payload with correct length and checksum; written independently, so that a format change is noticed."""
    length = HEADER.size + len(body)
    checksum = zlib.crc32(body, zlib.crc32(HEADER.pack(magic, version, parts, length, 0)))
    return HEADER.pack(magic, version, parts, length, checksum) + body


def varint(value: int) -> bytes:
    layout = b""
    while value >= 0x80:
        layout += bytes([value & 0x7F | 0x80])
        value >>= 7
    return layout + bytes([value])


def part(dtype: int, *shape: int, outline: bool = False) -> bytes:
    """The layout of one part in a header."""
    return bytes([dtype | OUTLINE * outline, len(shape)]) + b"".join(map(varint, shape))


def tensors() -> Iterator[Tensor]:
    """The tensors whose payloads are damaged."""
    yield random(6, 7)
    sparse = random(5, 9, dtype=torch.float64)
    sparse[sparse.abs() < 1] = 0
    yield sparse
    yield random(600, dtype=torch.bfloat16)
    yield torch.zeros(3)


def mutants(true: bytes, rng: python_random.Random) -> Iterator[bytes]:
    """Damaged copies of a payload, and random bytes."""
    while True:
        data = bytearray(true)
        match rng.randrange(6):
            case 0:
                yield bytes(data[: rng.randrange(len(data) + 1)])
            case 1:
                yield bytes(data) + rng.randbytes(rng.choice([1, 2, 3, 4, 8, 12, 64]))
            case 2 if data:
                for _ in range(rng.randint(1, 3)):
                    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
                yield bytes(data)
            case 3 if data:
                start = rng.randrange(len(data))
                data[start : start + rng.randint(1, 8)] = rng.randbytes(rng.randint(0, 8))
                yield bytes(data)
            case 4 if data:
                data[rng.randrange(len(data))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF])
                yield bytes(data)
            case _:
                yield rng.randbytes(rng.choice([0, 1, 11, 12, 13, 40, len(data)]))


def check(decoded: Tensor, like: Tensor) -> None:
    assert (decoded.shape, decoded.dtype, decoded.device) == (like.shape, like.dtype, like.device)
    decoded.clone()  # its memory can be read


@fixed_codecs
def test_damage_to_a_fixed_layout_raises_or_gives_a_tensor_as_agreed(codec: Codec) -> None:
    rng = python_random.Random(repr(codec))
    likes = list(tensors())
    for like in likes:
        true = as_bytes(payload.encode(like, codec, SEED))
        for _, mutant in zip(range(MUTANTS // len(likes)), mutants(true, rng), strict=False):
            try:
                decoded = payload.decode(as_tensor(mutant), codec, SEED, like)
            except PayloadError:
                continue
            assert len(mutant) == len(true), "a buffer of another length was accepted"
            check(decoded, like)


@variable_codecs
def test_damage_to_a_variable_layout_always_raises(codec: Codec) -> None:
    rng = python_random.Random(repr(codec))
    likes = list(tensors())
    for like in likes:
        true = as_bytes(payload.encode(like, codec, SEED))
        for _, mutant in zip(range(MUTANTS // len(likes)), mutants(true, rng), strict=False):
            if mutant != true:
                with pytest.raises(PayloadError):
                    payload.decode(as_tensor(mutant), codec, SEED, like)


@variable_codecs
def test_damage_with_a_valid_checksum_raises_or_gives_a_tensor_as_agreed(codec: Codec) -> None:
    rng = python_random.Random(repr(codec))
    likes = list(tensors())
    problems = []
    for like in likes:
        true = as_bytes(payload.encode(like, codec, SEED))
        count, body = true[3], true[HEADER.size :]
        for _, mutant in zip(range(MUTANTS // len(likes)), mutants(body, rng), strict=False):
            parts = count if rng.random() < 0.9 else rng.randrange(256)
            try:
                check(payload.decode(as_tensor(with_header(mutant, parts)), codec, SEED, like), like)
            except PayloadError as error:
                problems.append(str(error))
    assert len(problems) > MUTANTS / 4
    assert not [problem for problem in problems if "checksum" in problem], "this test computes wrong checksums"


@cache
def true_buffers() -> list[bytes]:
    """The payloads of all codecs for all tensors."""
    return [as_bytes(payload.encode(x, codec, SEED)) for codec in CODECS for x in tensors()]


@every_codec
def test_another_codecs_payload_raises_or_gives_a_tensor_as_agreed(codec: Codec) -> None:
    likes = list(tensors())
    for data in true_buffers():
        buffer = as_tensor(data)
        for like in likes:
            try:
                decoded = payload.decode(buffer, codec, SEED, like)
            except PayloadError:
                continue
            check(decoded, like)


@pytest.mark.parametrize(
    "codec",
    [
        Entropy(),
        Nonzero(),
        Chain(Nonzero(), Quantize(4)),
        Chain(Nonzero(), Sign()),
        Chain(Nonzero(), Ternary()),
        Chain(Nonzero(), Entropy()),
    ],
    ids=repr,
)
def test_outlines_in_place_of_data_raise(codec: Codec) -> None:
    # An outline has no data: accepted as the tensor, it would cause an unrelated error later.
    like = random(6, 7)
    parts = codec.encode((like,), SEED)
    for hollow in range(len(parts)):
        layout, data = b"", b""
        for i, p in enumerate(parts):
            outline = p.is_meta or i == hollow
            layout += part(payload.DTYPES[p.dtype], *p.shape, outline=outline)
            data += b"" if outline else as_bytes(p.contiguous().view(-1).view(torch.uint8))
        if not parts[hollow].is_meta:
            with pytest.raises(PayloadError):
                payload.decode(as_tensor(with_header(layout + data, len(parts))), codec, SEED, like)
    agreed = with_header(bytes([FLOAT32 | OUTLINE | AGREED]), 1)
    with pytest.raises(PayloadError):
        payload.decode(as_tensor(agreed), codec, SEED, like)


@variable_codecs
def test_payloads_match_the_independent_writer(codec: Codec) -> None:
    for like in tensors():
        true = as_bytes(payload.encode(like, codec, SEED))
        assert with_header(true[HEADER.size :], true[3]) == true


def test_another_magic_raises_and_is_shown() -> None:
    true = as_bytes(payload.encode(random(4), Entropy(), SEED))
    other = with_header(true[HEADER.size :], true[3], magic=b"XY")
    with pytest.raises(PayloadError, match="begins with b'TW', not b'XY'"):
        payload.decode(as_tensor(other), Entropy(), SEED, random(4))


@pytest.mark.parametrize("version", [0, 2, 255])
def test_another_version_raises_and_is_shown(version: int) -> None:
    true = as_bytes(payload.encode(random(4), Entropy(), SEED))
    other = with_header(true[HEADER.size :], true[3], version=version)
    with pytest.raises(PayloadError, match=f"version {version}.*reads version 1"):
        payload.decode(as_tensor(other), Entropy(), SEED, random(4))


@pytest.mark.parametrize("length", [0, 11, 13, 2**32 - 1])
def test_a_false_length_raises(length: int) -> None:
    true = bytearray(as_bytes(payload.encode(random(4), Entropy(), SEED)))
    true[4:8] = struct.pack("<I", length)
    with pytest.raises(PayloadError, match=str(length)):
        payload.decode(as_tensor(bytes(true)), Entropy(), SEED, random(4))


@pytest.mark.parametrize("dims", [9, 64, 255])
def test_too_many_dimensions_raise(dims: int) -> None:
    layout = joined(entropy_coded(b"\0" * 5, *[1] * dims))
    with pytest.raises(PayloadError, match=f"{dims} dimensions"):
        payload.decode(as_tensor(layout), Entropy(), SEED, random(1))


def test_a_buffer_of_floats_raises() -> None:
    with pytest.raises(PayloadError):
        payload.decode(random(6), Identity(), SEED, random(6))


# Limits of a decoder's memory. Eight bytes per entry: the widest type, with as many entries as the agreed tensor. The
# slack: 1 KiB of a part (flags, scales, a coder's header), and a block of 512 scaled entries to which a short tensor is
# padded.
BYTES_PER_ENTRY, SLACK = 8, 1024 + 512 * 8
# The limit for all results together, if none were freed: a chain of three codecs needs 17, most of them integers. It is
# far below one for each of the 255 parts that a header may declare.
RESULTS = 24


class Largest(TorchDispatchMode):
    """Measures the memory of the results of torch operations."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        inputs = {x.untyped_storage().data_ptr() for x in tree_leaves((args, kwargs)) if is_real(x)}
        for x in tree_leaves(result):
            if is_real(x) and x.untyped_storage().data_ptr() not in inputs:  # a view takes no memory
                self.largest = max(self.largest, x.untyped_storage().nbytes())
                self.total += x.untyped_storage().nbytes()
        return result


def is_real(x: Any) -> bool:
    return isinstance(x, Tensor) and not x.is_meta


def zeros(nbytes: int) -> bytes:
    """`nbytes` zeros, compressed to almost nothing."""
    return bytes([PLANES]) + compress(np.zeros(nbytes, np.uint8), Histogram(), Huffman())


def truncated(nbytes: int) -> bytes:
    """The first half of a block of `nbytes` symbols."""
    block = compress((np.arange(nbytes) % 7).astype(np.uint8), Histogram(), Rans())
    return bytes([PLANES]) + block[: len(block) // 2]


ENTRIES = 4096
BIG = 2**31
ROOM = BYTES_PER_ENTRY * ENTRIES  # the largest part, without its slack


def entropy_coded(data: bytes, *outline: int, dtype: int = FLOAT32) -> tuple[bytes, bytes]:
    """The layout and the data of a part for Entropy to decompress."""
    return part(UINT8, len(data)) + part(dtype, *outline, outline=True), data


def joined(*parts: tuple[bytes, bytes]) -> bytes:
    layout, data = (b"".join(column) for column in zip(*parts, strict=True))
    return with_header(layout + data, 2 * len(parts))


HOSTILE: dict[str, Callable[[], bytes]] = {
    "a huge shape": lambda: with_header(part(FLOAT32, BIG), 1),
    "a huge outline": lambda: joined(entropy_coded(b"\0" * 64, BIG)),
    "many dimensions that multiply": lambda: joined(entropy_coded(b"\0" * 64, *[256] * 8)),
    "a huge dimension beside an empty one": lambda: joined(entropy_coded(b"\0", 0, BIG * 64)),
    "a huge shape for values": lambda: with_header(part(FLOAT32, BIG) + part(UINT8, 1) + bytes([FLOAT32 | 0x30]), 3),
    "a decompression bomb": lambda: joined(entropy_coded(zeros(64 * ROOM), 16 * ROOM)),
    "truncated symbols": lambda: joined(entropy_coded(truncated(4 * ENTRIES), ENTRIES)),
    "many bombs, each within the limit of a part": lambda: joined(
        *[entropy_coded(zeros(ROOM), ROOM, dtype=UINT8) for _ in range(127)]
    ),
    "an outline of many narrow entries": lambda: with_header(
        part(UINT8, ROOM // 2) + part(9, ROOM // 512) + part(UINT8, ROOM, outline=True) + bytes(ROOM // 2 + ROOM // 64),
        3,
    ),
    "255 outlines": lambda: with_header(bytes([FLOAT32 | 0x30]) * 255, 255),
}


@cache
def hostile_bytes(name: str) -> bytes:
    return HOSTILE[name]()


@pytest.mark.parametrize("hostile", HOSTILE)
@variable_codecs
def test_hostile_payloads_cause_no_large_allocation(codec: Codec, hostile: str) -> None:
    like, buffer = random(ENTRIES), as_tensor(hostile_bytes(hostile))
    with Largest():  # lazy imports are done here, before memory is measured
        payload.decode(payload.encode(like, codec, SEED), codec, SEED, like)
    tracemalloc.start()
    try:
        with Largest() as seen, pytest.raises(PayloadError):
            payload.decode(buffer, codec, SEED, like)
        _, python_peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert seen.largest <= BYTES_PER_ENTRY * ENTRIES + SLACK + buffer.nbytes
    assert seen.total + python_peak <= RESULTS * (BYTES_PER_ENTRY * ENTRIES + SLACK + buffer.nbytes)


@every_codec
def test_valid_payloads_stay_within_the_memory_limits(codec: Codec) -> None:
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        like = random(ENTRIES, dtype=dtype)
        like[1::3] = 0
        buffer = payload.encode(like, codec, SEED)
        with Largest() as seen:
            payload.decode(buffer, codec, SEED, like)
        assert 0 < seen.largest <= BYTES_PER_ENTRY * ENTRIES + SLACK or codec == Identity()
        assert seen.total <= RESULTS * (BYTES_PER_ENTRY * ENTRIES + SLACK)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("select", [Identity(), Nonzero(), TopK(1.0)], ids=repr)
def test_valid_payloads_never_exceed_the_size_limits(select: Codec, dtype: torch.dtype) -> None:
    # Limits are for hostile payloads; a useless codec, such as one with a scale per entry, is still valid.
    coarse = (Identity(), Cast("float16"), Quantize(8, block=1), Quantize(2, block=3), Sign(), Ternary())
    for codec in (Chain(select, code, *last) for code in coarse for last in ((Entropy(),), (Entropy(), Entropy()))):
        for like in (random(5000, dtype=dtype), torch.zeros(5000, dtype=dtype), random(1, dtype=dtype)):
            check(payload.decode(payload.encode(like, codec, SEED), codec, SEED, like), like)


def test_the_memory_measurement_counts_results_but_not_views() -> None:
    with Largest() as seen:
        torch.zeros(1000).view(10, 100)[3:].add(1)
    assert (seen.largest, seen.total) == (4000, 4000 + 2800)


def test_concatenated_payloads_are_split() -> None:
    x = random(6, 7)
    codecs = (Identity(), Entropy(), Quantize(8), Nonzero())
    buffers = [payload.encode(x, codec, SEED) for codec in codecs]
    pieces = payload.split(torch.cat(buffers), [payload.encoded_bytes(codec, x) for codec in codecs])
    assert all(map(same_bits, pieces, buffers))
    for codec, piece in zip(codecs, pieces, strict=True):
        check(payload.decode(piece, codec, SEED, x), x)


@pytest.mark.parametrize(
    ("nbytes", "lengths", "problem"),
    [
        (10, [4, 7], "7 bytes in a buffer with 6 left"),
        (10, [4, 4], "2 bytes are left over"),
        (10, [], "10 bytes are left over"),
        (10, [None], "fewer than a header"),
        (10, [10, None], "0 bytes are fewer than a header"),
        (20, [None], "begins with"),
    ],
)
def test_lengths_that_do_not_add_up_raise(nbytes: int, lengths: list[int | None], problem: str) -> None:
    with pytest.raises(PayloadError, match=problem):
        payload.split(torch.zeros(nbytes, dtype=torch.uint8), lengths)


@pytest.mark.parametrize("declared", [0, 11, 10_000, 2**32 - 1])
def test_splitting_by_a_false_length_raises(declared: int) -> None:
    buffer = bytearray(as_bytes(payload.encode(random(6), Entropy(), SEED)))
    buffer[4:8] = struct.pack("<I", declared)
    with pytest.raises(PayloadError, match=str(declared)):
        payload.split(as_tensor(bytes(buffer)), [None])
