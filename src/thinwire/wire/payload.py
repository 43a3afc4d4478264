"""Payloads: the parts of a message in one buffer of bytes. docs/wire-format.md describes the format.

If the codec's layout is fixed, both ends know it and only the data is sent. If it depends on the values, a header has
the layout, and a checksum protects it. A received buffer is untrusted: it decodes to a tensor of the agreed shape and
type, or raises PayloadError, and never makes the receiver allocate much more than that tensor.
"""

import struct
import zlib
from collections.abc import Iterable
from functools import lru_cache
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from ..core import Codec, Parts, PayloadError
from ..core.lazy import Lazy, materialize, meta_tensor
from ..kernels.bits import bytes_of
from .varints import Reader, encode_varint

MAGIC, VERSION = b"TW", 1
HEADER = struct.Struct("<2sBBII")  # magic, version, number of parts, total length, checksum of the rest
DTYPES = {
    torch.uint8: 1,
    torch.int8: 2,
    torch.int16: 3,
    torch.int32: 4,
    torch.int64: 5,
    torch.float16: 6,
    torch.bfloat16: 7,
    torch.float32: 8,
    torch.float64: 9,
}
BY_CODE = {code: dtype for dtype, code in DTYPES.items()}
OUTLINE, AGREED = 0x10, 0x20  # bits of a part's tag: no data; no shape, as it is the agreed tensor's
MAX_DIMS = 8
SLACK_BYTES = 1024  # of a part, beyond twice the agreed tensor: flags, scales, a coder's own header


class Slot(NamedTuple):
    """The layout of a part in a buffer."""

    shape: torch.Size
    dtype: torch.dtype
    has_data: bool

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize if self.has_data else 0


def encode(x: Tensor | Lazy, codec: Codec, seed: int) -> Tensor:
    """The payload of `x` as uint8; its length is the size of the message."""
    parts = codec.encode_lazy(x, seed)
    data = [bytes_of(part) for part in parts if not part.is_meta]
    if not codec.variable:
        return _joined(data)
    layout_bytes = bytearray()
    for part in parts:
        agreed = part.is_meta and part.shape == x.shape and part.dtype == x.dtype
        layout_bytes.append(DTYPES[part.dtype] | OUTLINE * part.is_meta | AGREED * agreed)
        if not agreed:
            layout_bytes += bytes([part.ndim]) + b"".join(map(encode_varint, part.shape))
    body = torch.cat([_from_bytes(layout_bytes, x.device), *data])
    length = HEADER.size + body.numel()
    if length >= 2**32:
        raise ValueError(f"a message of {length} bytes; one may have 4 GiB at most")
    checksum = _checksum(len(parts), length, _memory(body))
    head = HEADER.pack(MAGIC, VERSION, len(parts), length, checksum)
    return torch.cat([_from_bytes(head, x.device), body])


def decode(buffer: Tensor, codec: Codec, seed: int, like: Tensor) -> Tensor:
    """The tensor in a payload, with the shape and type of `like`."""
    return materialize(decode_lazy(buffer, codec, seed, like))


def decode_lazy(buffer: Tensor, codec: Codec, seed: int, like: Tensor) -> Tensor | Lazy:
    """The same, lazy if the codec supports that; all checks of the payload are done here."""
    parts = _parts_with_header(buffer, like) if codec.variable else _cut(buffer, layout(codec, like.shape, like.dtype))
    try:
        x, rest = codec.decode_lazy(parts, seed)
    except PayloadError:
        raise
    except (ValueError, TypeError, RuntimeError, IndexError) as error:
        raise PayloadError(f"the parts do not fit {codec!r}: {error}") from error
    if rest or x.device.type == "meta" or x.shape != like.shape or x.dtype != like.dtype:
        raise PayloadError(
            f"{codec!r} decoded to {x.dtype} {tuple(x.shape)} and {len(rest)} parts more, "
            f"not to {like.dtype} {tuple(like.shape)}"
        )
    return x


def encoded_bytes(codec: Codec, like: Tensor) -> int | None:
    """The length of the payload of a tensor like this; None if it depends on the values."""
    if codec.variable:
        return None
    return sum(slot.nbytes for slot in layout(codec, like.shape, like.dtype))


def max_bytes(like: Tensor) -> int:
    """The largest allowed size of all parts of a payload of a tensor like this, including what outlines stand for."""
    return 8 * like.nbytes + 4 * SLACK_BYTES


@lru_cache(maxsize=4096)
def layout(codec: Codec, shape: torch.Size, dtype: torch.dtype) -> tuple[Slot, ...]:
    """The parts that a codec of fixed layout makes of any tensor of this shape and type.

    Examples:
        >>> import torch
        >>> from thinwire import TopK
        >>> from thinwire.inspect import layout
        >>> values, positions, outline = layout(TopK(0.1), torch.Size([100]), torch.float32)
        >>> values.nbytes, positions.nbytes, outline.nbytes
        (40, 8, 0)
    """
    parts = codec.encode((torch.zeros(shape, dtype=dtype),), 0)
    return tuple(Slot(part.shape, part.dtype, not part.is_meta) for part in parts)


def split(buffer: Tensor, lengths: Iterable[int | None]) -> list[Tensor]:
    """Split concatenated payloads; a length of None is read from the payload's header."""
    pieces, start = [], 0
    for length in lengths:
        left = buffer[start:]
        if length is None:
            _, length, _ = _header(left)
        if length > left.numel():
            raise PayloadError(f"a message of {length} bytes in a buffer with {left.numel()} left")
        pieces.append(left[:length])
        start += length
    if start != buffer.numel():
        raise PayloadError(f"{buffer.numel() - start} bytes are left over after the last message")
    return pieces


def _parts_with_header(buffer: Tensor, like: Tensor) -> Parts:
    """The parts in a buffer whose header has the layout."""
    count, length, checksum = _header(buffer)
    if length != buffer.numel():
        raise PayloadError(f"the header declares {length} bytes, the buffer has {buffer.numel()}")
    body = buffer[HEADER.size :]
    memory = _memory(body)
    if checksum != _checksum(count, length, memory):
        raise PayloadError("the checksum does not match: the buffer was damaged in transit")
    reader = Reader(memory)
    slots = tuple(_slot(reader, like) for _ in range(count))
    declared = sum(prod(slot.shape) * slot.dtype.itemsize for slot in slots)
    if declared > max_bytes(like):
        raise PayloadError(f"the parts declare {declared} bytes in all, more than a tensor of {like.nbytes} can need")
    return _cut(body[reader.used :], slots)


def _header(buffer: Tensor) -> tuple[int, int, int]:
    """The number of parts, the length and the checksum that a header declares."""
    if buffer.numel() < HEADER.size:
        raise PayloadError(f"{buffer.numel()} bytes are fewer than a header's {HEADER.size}")
    magic, version, count, length, checksum = HEADER.unpack(bytes(buffer[: HEADER.size].tolist()))
    if magic != MAGIC:
        raise PayloadError(f"a payload begins with {MAGIC!r}, not {magic!r}")
    if version != VERSION:
        raise PayloadError(f"a payload of version {version}; this thinwire reads version {VERSION}")
    if length < HEADER.size:
        raise PayloadError(f"the header declares {length} bytes, fewer than its own {HEADER.size}")
    return count, length, checksum


def _slot(reader: Reader, like: Tensor) -> Slot:
    tag = reader.byte()
    dtype = BY_CODE.get(tag & 0x0F)
    if dtype is None or tag & ~(0x0F | OUTLINE | AGREED):
        raise PayloadError(f"a part has the unknown tag {tag:#04x}")
    if tag & AGREED:
        if not tag & OUTLINE or dtype != like.dtype:
            raise PayloadError("a part claims to be the outline of the agreed tensor and is not")
        return Slot(like.shape, dtype, has_data=False)
    dims = reader.byte()
    if dims > MAX_DIMS:
        raise PayloadError(f"a part declares {dims} dimensions")
    shape = torch.Size([reader.number() for _ in range(dims)])
    if max(prod(shape), *shape, 0) * dtype.itemsize > 2 * like.nbytes + SLACK_BYTES or (
        dtype.is_floating_point and prod(shape) > like.numel() + 1
    ):
        raise PayloadError(f"a part of shape {tuple(shape)} is more than a tensor of {like.numel()} entries can need")
    return Slot(shape, dtype, has_data=not tag & OUTLINE)


def _cut(buffer: Tensor, slots: tuple[Slot, ...]) -> Parts:
    needed = sum(slot.nbytes for slot in slots)
    if buffer.dtype != torch.uint8 or buffer.ndim != 1 or buffer.numel() != needed:
        raise PayloadError(f"the parts need {needed} bytes, the buffer has {buffer.nbytes} as {buffer.dtype}")
    parts, start = [], 0
    for slot in slots:
        if not slot.has_data:
            parts.append(meta_tensor(slot.shape, slot.dtype))
            continue
        piece = buffer[start : start + slot.nbytes]
        if piece.storage_offset() % slot.dtype.itemsize:
            piece = piece.clone()  # a view of wider numbers must be aligned
        if slot.dtype != torch.uint8:
            piece = piece.view(slot.dtype)
        parts.append(piece if piece.shape == slot.shape else piece.view(slot.shape))
        start += slot.nbytes
    return tuple(parts)


def _joined(data: list[Tensor]) -> Tensor:
    """The parts concatenated; parts that are adjacent in memory are not copied."""
    first = data[0]
    end = first.data_ptr()
    for piece in data:
        if piece.data_ptr() != end or piece.untyped_storage().data_ptr() != first.untyped_storage().data_ptr():
            return torch.cat(data)
        end += piece.numel()
    return first.as_strided((end - first.data_ptr(),), (1,))


def _from_bytes(data: bytes | bytearray, device: torch.device) -> Tensor:
    return (
        torch.frombuffer(bytearray(data), dtype=torch.uint8).to(device) if data else torch.empty(0, dtype=torch.uint8)
    )


def _memory(x: Tensor) -> memoryview:
    return x.contiguous().cpu().numpy().data


def _checksum(count: int, length: int, body: memoryview) -> int:
    head = HEADER.pack(MAGIC, VERSION, count, length, 0)
    return zlib.crc32(body, zlib.crc32(head))
