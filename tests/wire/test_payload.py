"""A sealed buffer is untrusted input: whatever the bytes, a tensor as agreed or a PayloadError, and little memory."""

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
from thinwire.entropy.block import squeeze
from thinwire.extend import Codec
from thinwire.wire import payload

from ..contracts.table import CODECS
from ..helpers import random, same_bits

MUTANTS = 2000  # for each codec, and for those with a checksum as many again that get past it
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


def sealed(body: bytes, parts: int, magic: bytes = b"TW", version: int = 1) -> bytes:
    """A buffer with a true length and checksum, written here once more so that a change of the format is noticed."""
    length = HEADER.size + len(body)
    checksum = zlib.crc32(body, zlib.crc32(HEADER.pack(magic, version, parts, length, 0)))
    return HEADER.pack(magic, version, parts, length, checksum) + body


def varint(value: int) -> bytes:
    told = b""
    while value >= 0x80:
        told += bytes([value & 0x7F | 0x80])
        value >>= 7
    return told + bytes([value])


def part(dtype: int, *shape: int, outline: bool = False) -> bytes:
    """The layout of one part, as a header tells it."""
    return bytes([dtype | OUTLINE * outline, len(shape)]) + b"".join(map(varint, shape))


def tensors() -> Iterator[Tensor]:
    """What the buffers to be damaged say."""
    yield random(6, 7)
    sparse = random(5, 9, dtype=torch.float64)
    sparse[sparse.abs() < 1] = 0
    yield sparse
    yield random(600, dtype=torch.bfloat16)
    yield torch.zeros(3)


def mutants(true: bytes, rng: python_random.Random) -> Iterator[bytes]:
    """Damaged copies of a buffer, and bytes that were never one."""
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
def test_damage_to_a_fixed_layout_is_refused_or_gives_a_tensor_as_agreed(codec: Codec) -> None:
    rng = python_random.Random(repr(codec))
    likes = list(tensors())
    for like in likes:
        true = as_bytes(payload.encode(like, codec, SEED))
        for _, mutant in zip(range(MUTANTS // len(likes)), mutants(true, rng), strict=False):
            try:
                decoded = payload.decode(as_tensor(mutant), codec, SEED, like)
            except PayloadError:
                continue
            assert len(mutant) == len(true), "a buffer of another length was taken"
            check(decoded, like)


@variable_codecs
def test_damage_to_a_variable_layout_is_always_refused(codec: Codec) -> None:
    rng = python_random.Random(repr(codec))
    likes = list(tensors())
    for like in likes:
        true = as_bytes(payload.encode(like, codec, SEED))
        for _, mutant in zip(range(MUTANTS // len(likes)), mutants(true, rng), strict=False):
            if mutant != true:
                with pytest.raises(PayloadError):
                    payload.decode(as_tensor(mutant), codec, SEED, like)


@variable_codecs
def test_what_gets_past_the_checksum_is_refused_or_gives_a_tensor_as_agreed(codec: Codec) -> None:
    rng = python_random.Random(repr(codec))
    likes = list(tensors())
    problems = []
    for like in likes:
        true = as_bytes(payload.encode(like, codec, SEED))
        count, body = true[3], true[HEADER.size :]
        for _, mutant in zip(range(MUTANTS // len(likes)), mutants(body, rng), strict=False):
            parts = count if rng.random() < 0.9 else rng.randrange(256)
            try:
                check(payload.decode(as_tensor(sealed(mutant, parts)), codec, SEED, like), like)
            except PayloadError as error:
                problems.append(str(error))
    assert len(problems) > MUTANTS / 4
    assert not [problem for problem in problems if "checksum" in problem], "this test makes its checksums wrongly"


@cache
def true_buffers() -> list[bytes]:
    """What all codecs make of all tensors."""
    return [as_bytes(payload.encode(said, codec, SEED)) for codec in CODECS for said in tensors()]


@every_codec
def test_another_codecs_buffer_is_refused_or_gives_a_tensor_as_agreed(codec: Codec) -> None:
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
def test_outlines_where_data_should_be_are_refused(codec: Codec) -> None:
    # An outline has a shape and no numbers: taken for the tensor, it would fail far from here, as something else.
    like = random(6, 7)
    parts = codec.encode((like,), SEED)
    for hollow in range(len(parts)):
        told, data = b"", b""
        for i, p in enumerate(parts):
            outline = p.is_meta or i == hollow
            told += part(payload.DTYPES[p.dtype], *p.shape, outline=outline)
            data += b"" if outline else as_bytes(p.contiguous().view(-1).view(torch.uint8))
        if not parts[hollow].is_meta:
            with pytest.raises(PayloadError):
                payload.decode(as_tensor(sealed(told + data, len(parts))), codec, SEED, like)
    agreed = sealed(bytes([FLOAT32 | OUTLINE | AGREED]), 1)
    with pytest.raises(PayloadError):
        payload.decode(as_tensor(agreed), codec, SEED, like)


@variable_codecs
def test_the_format_is_the_one_described_here(codec: Codec) -> None:
    for like in tensors():
        true = as_bytes(payload.encode(like, codec, SEED))
        assert sealed(true[HEADER.size :], true[3]) == true


def test_another_magic_is_named() -> None:
    true = as_bytes(payload.encode(random(4), Entropy(), SEED))
    other = sealed(true[HEADER.size :], true[3], magic=b"XY")
    with pytest.raises(PayloadError, match="begins with b'TW', not b'XY'"):
        payload.decode(as_tensor(other), Entropy(), SEED, random(4))


@pytest.mark.parametrize("version", [0, 2, 255])
def test_another_version_is_named(version: int) -> None:
    true = as_bytes(payload.encode(random(4), Entropy(), SEED))
    other = sealed(true[HEADER.size :], true[3], version=version)
    with pytest.raises(PayloadError, match=f"version {version}.*reads version 1"):
        payload.decode(as_tensor(other), Entropy(), SEED, random(4))


@pytest.mark.parametrize("length", [0, 11, 13, 2**32 - 1])
def test_a_false_length_is_refused(length: int) -> None:
    true = bytearray(as_bytes(payload.encode(random(4), Entropy(), SEED)))
    true[4:8] = struct.pack("<I", length)
    with pytest.raises(PayloadError, match=str(length)):
        payload.decode(as_tensor(bytes(true)), Entropy(), SEED, random(4))


@pytest.mark.parametrize("dims", [9, 64, 255])
def test_more_dimensions_than_a_message_has_are_refused(dims: int) -> None:
    told = joined(squeezed(b"\0" * 5, *[1] * dims))
    with pytest.raises(PayloadError, match=f"{dims} dimensions"):
        payload.decode(as_tensor(told), Entropy(), SEED, random(1))


def test_a_buffer_of_numbers_is_refused() -> None:
    with pytest.raises(PayloadError):
        payload.decode(random(6), Identity(), SEED, random(6))


# What a decoder may take. Eight bytes an entry: the widest type, of any tensor that has as many entries as the agreed
# one. The slack: a part's own 1 KiB (flags, scales, a coder's header), and a block of 512 scaled entries that a short
# tensor is padded to.
BYTES_PER_ENTRY, SLACK = 8, 1024 + 512 * 8
# And of all its results together, if none were freed: a chain of three codecs needs 17 of them, most of them integers.
# Not one for each of the 255 parts that a header may declare.
AT_A_TIME = 24


class Largest(TorchDispatchMode):
    """Notes how much memory the results of torch's operations take."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        inputs = {x.untyped_storage().data_ptr() for x in tree_leaves((args, kwargs)) if is_real(x)}
        for x in tree_leaves(result):
            if is_real(x) and x.untyped_storage().data_ptr() not in inputs:  # a view takes nothing
                self.largest = max(self.largest, x.untyped_storage().nbytes())
                self.total += x.untyped_storage().nbytes()
        return result


def is_real(x: Any) -> bool:
    return isinstance(x, Tensor) and not x.is_meta


def zeros(nbytes: int) -> bytes:
    """So many zeros, squeezed to almost nothing."""
    return bytes([PLANES]) + squeeze(np.zeros(nbytes, np.uint8), Histogram(), Huffman())


def cut_off(nbytes: int) -> bytes:
    """Half of what so many squeezed bytes take."""
    block = squeeze((np.arange(nbytes) % 7).astype(np.uint8), Histogram(), Rans())
    return bytes([PLANES]) + block[: len(block) // 2]


ENTRIES = 4096
BIG = 2**31
ROOM = BYTES_PER_ENTRY * ENTRIES  # what a part may hold at most, but for its slack


def squeezed(data: bytes, *outline: int, dtype: int = FLOAT32) -> tuple[bytes, bytes]:
    """The layout and the data of a part that Entropy is to expand."""
    return part(UINT8, len(data)) + part(dtype, *outline, outline=True), data


def joined(*parts: tuple[bytes, bytes]) -> bytes:
    told, data = (b"".join(column) for column in zip(*parts, strict=True))
    return sealed(told + data, 2 * len(parts))


HOSTILE: dict[str, Callable[[], bytes]] = {
    "a huge shape": lambda: sealed(part(FLOAT32, BIG), 1),
    "a huge outline": lambda: joined(squeezed(b"\0" * 64, BIG)),
    "many dimensions that multiply": lambda: joined(squeezed(b"\0" * 64, *[256] * 8)),
    "a huge dimension beside an empty one": lambda: joined(squeezed(b"\0", 0, BIG * 64)),
    "a huge shape for values": lambda: sealed(part(FLOAT32, BIG) + part(UINT8, 1) + bytes([FLOAT32 | 0x30]), 3),
    "a bomb": lambda: joined(squeezed(zeros(64 * ROOM), 16 * ROOM)),
    "symbols that are cut off": lambda: joined(squeezed(cut_off(4 * ENTRIES), ENTRIES)),
    "many bombs, each within what a part may hold": lambda: joined(
        *[squeezed(zeros(ROOM), ROOM, dtype=UINT8) for _ in range(127)]
    ),
    "an outline of many narrow entries": lambda: sealed(
        part(UINT8, ROOM // 2) + part(9, ROOM // 512) + part(UINT8, ROOM, outline=True) + bytes(ROOM // 2 + ROOM // 64),
        3,
    ),
    "255 outlines": lambda: sealed(bytes([FLOAT32 | 0x30]) * 255, 255),
}


@cache
def hostile_bytes(name: str) -> bytes:
    return HOSTILE[name]()


@pytest.mark.parametrize("hostile", HOSTILE)
@variable_codecs
def test_no_hostile_buffer_makes_a_large_allocation(codec: Codec, hostile: str) -> None:
    like, buffer = random(ENTRIES), as_tensor(hostile_bytes(hostile))
    with Largest():  # what is imported when it is first needed is there then
        payload.decode(payload.encode(like, codec, SEED), codec, SEED, like)
    tracemalloc.start()
    try:
        with Largest() as seen, pytest.raises(PayloadError):
            payload.decode(buffer, codec, SEED, like)
        _, python_peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert seen.largest <= BYTES_PER_ENTRY * ENTRIES + SLACK + buffer.nbytes
    assert seen.total + python_peak <= AT_A_TIME * (BYTES_PER_ENTRY * ENTRIES + SLACK + buffer.nbytes)


@every_codec
def test_an_honest_buffer_takes_no_more_than_a_hostile_one_may(codec: Codec) -> None:
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        like = random(ENTRIES, dtype=dtype)
        like[1::3] = 0
        buffer = payload.encode(like, codec, SEED)
        with Largest() as seen:
            payload.decode(buffer, codec, SEED, like)
        assert 0 < seen.largest <= BYTES_PER_ENTRY * ENTRIES + SLACK or codec == Identity()
        assert seen.total <= AT_A_TIME * (BYTES_PER_ENTRY * ENTRIES + SLACK)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("select", [Identity(), Nonzero(), TopK(1.0)], ids=repr)
def test_no_honest_message_is_refused_for_its_size(select: Codec, dtype: torch.dtype) -> None:
    # The bounds are for the hostile: a codec that saves nothing, as with a scale for every entry, is only foolish.
    coarse = (Identity(), Cast("float16"), Quantize(8, block=1), Quantize(2, block=3), Sign(), Ternary())
    for codec in (Chain(select, code, *last) for code in coarse for last in ((Entropy(),), (Entropy(), Entropy()))):
        for like in (random(5000, dtype=dtype), torch.zeros(5000, dtype=dtype), random(1, dtype=dtype)):
            check(payload.decode(payload.encode(like, codec, SEED), codec, SEED, like), like)


def test_memory_that_is_taken_is_seen() -> None:
    with Largest() as seen:
        torch.zeros(1000).view(10, 100)[3:].add(1)
    assert (seen.largest, seen.total) == (4000, 4000 + 2800)


def test_a_row_of_buffers_is_cut_apart() -> None:
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
def test_a_row_that_does_not_add_up_is_refused(nbytes: int, lengths: list[int | None], problem: str) -> None:
    with pytest.raises(PayloadError, match=problem):
        payload.split(torch.zeros(nbytes, dtype=torch.uint8), lengths)


@pytest.mark.parametrize("declared", [0, 11, 10_000, 2**32 - 1])
def test_a_row_is_not_cut_by_a_false_length(declared: int) -> None:
    buffer = bytearray(as_bytes(payload.encode(random(6), Entropy(), SEED)))
    buffer[4:8] = struct.pack("<I", declared)
    with pytest.raises(PayloadError, match=str(declared)):
        payload.split(as_tensor(bytes(buffer)), [None])
