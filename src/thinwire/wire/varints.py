"""Variable-length integers: seven bits per byte, lowest first; the high bit is set if more follow."""

from ..core import PayloadError

LONGEST = 35  # bits


def encode_varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


class Reader:
    """Reads bytes and varints in sequence."""

    def __init__(self, data: bytes | memoryview) -> None:
        self.data, self.used = data, 0

    def byte(self) -> int:
        if self.used >= len(self.data):
            raise PayloadError("the buffer ends within its layout")
        self.used += 1
        return int(self.data[self.used - 1])

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        if count > len(self.data) - self.used:
            raise PayloadError("the buffer ends within its layout")
        self.used += count
        return bytes(self.data[self.used - count : self.used])

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > LONGEST:
                raise PayloadError("a number is longer than 6 bytes")
