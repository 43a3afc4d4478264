"""Small numbers in few bytes: seven bits a byte, lowest first; the high bit says that more follow."""

from ..core import PayloadError

LONGEST = 35  # bits


def written(value: int) -> bytes:
    told = bytearray()
    while value >= 0x80:
        told.append(value & 0x7F | 0x80)
        value >>= 7
    told.append(value)
    return bytes(told)


class Reader:
    """Reads bytes one after the other, and what is written in them."""

    def __init__(self, data: bytes | memoryview) -> None:
        self.data, self.used = data, 0

    def byte(self) -> int:
        if self.used >= len(self.data):
            raise PayloadError("the buffer ends within its layout")
        self.used += 1
        return int(self.data[self.used - 1])

    def take(self, count: int) -> bytes:
        """So many of them."""
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
