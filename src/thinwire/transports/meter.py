"""Counts bytes and seconds of communication. Bytes are those of the buffers that are sent."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

ITEMIZED = ("payload_by_unit", "sent", "received")


@dataclass
class Meter:
    """Counts one rank's traffic since the start of training.

    Examples:
        >>> from thinwire.inspect import Meter
        >>> meter = Meter(dense_bytes=4000, payload_bytes=100)
        >>> meter.ratio
        40.0
        >>> meter.as_dict()["thinwire/payload_bytes"]
        100
    """

    steps: int = 0
    rounds: int = 0  # exchanges with the peers
    dense_bytes: int = 0  # the gradients themselves
    payload_bytes: int = 0  # messages that this rank encoded, each counted once
    link_bytes: int = 0  # what its network card carried in the busier direction, exchange by exchange
    dense_link_bytes: int = 0  # link_bytes of a plain all-reduce of the gradients
    encode_seconds: float = 0.0
    exchange_seconds: float = 0.0  # waiting for the peers and the wire
    decode_seconds: float = 0.0
    skipped: int = 0  # messages dropped because a gradient was not finite
    average_bytes: int = 0  # as link_bytes, for `handle.average()` and the like
    relearned: int = 0  # how often the error of a learned code was too large and it was learned again
    code_error: float = 0.0  # relative error of a learned code when it was last checked
    consensus: float = 0.0  # consensus distance when `handle.average()` was last called
    payload_by_unit: dict[str, int] = field(default_factory=dict)  # payload_bytes, by unit
    sent: dict[int, int] = field(default_factory=dict)  # bytes sent to each rank
    received: dict[int, int] = field(default_factory=dict)  # bytes received from each rank
    original_ranks: tuple[int, ...] = ()  # original numbers of the ranks, if some ranks failed and they changed

    @property
    def ratio(self) -> float:
        """The compression ratio: bytes of the gradients divided by bytes of the payload."""
        return self.dense_bytes / self.payload_bytes if self.payload_bytes else 1.0

    def as_dict(self, prefix: str = "thinwire/") -> dict[str, float]:
        """A flat dict of numbers for loggers: all fields except the dictionaries."""
        return {prefix + name: getattr(self, name) for name in (*_numbers(), "ratio")}

    def itemized(self) -> dict[str, dict[Any, int]]:
        """The dictionaries: bytes by unit, and by rank."""
        return {name: dict(getattr(self, name)) for name in ITEMIZED}

    def load(self, numbers: Mapping[str, float], itemized: Mapping[str, Mapping[Any, int]]) -> None:
        """Continue from the values that `as_dict(prefix="")` and `itemized` returned."""
        missing = set(_numbers()) - numbers.keys()
        if missing:
            raise ValueError(f"the saved meter lacks {', '.join(sorted(missing))}")
        for name in _numbers():
            setattr(self, name, numbers[name])
        for name in ITEMIZED:
            setattr(self, name, dict(itemized.get(name, {})))

    def count_payload(self, unit: str, nbytes: int) -> None:
        """Count a message that this rank has encoded."""
        self.payload_bytes += nbytes
        self.payload_by_unit[unit] = self.payload_by_unit.get(unit, 0) + nbytes

    def count_carried(self, sent: Mapping[int, int], received: Mapping[int, int]) -> None:
        """Count one transfer: bytes sent to each rank, and bytes received from each."""
        self.link_bytes += max(sum(sent.values()), sum(received.values()))
        for total, new in ((self.sent, sent), (self.received, received)):
            for rank, nbytes in new.items():
                original = self.original_ranks[rank] if self.original_ranks else rank
                total[original] = total.get(original, 0) + nbytes

    def add(self, other: "Meter") -> None:
        """Add the counts of a separate meter."""
        for name in _numbers():
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ITEMIZED:
            mine = getattr(self, name)
            for key, nbytes in getattr(other, name).items():
                mine[key] = mine.get(key, 0) + nbytes

    def count_dense(self, nbytes: int, ranks: int) -> None:
        """Count gradients that are about to be exchanged, and what a plain all-reduce of them would cost."""
        self.dense_bytes += nbytes
        self.dense_link_bytes += 2 * (ranks - 1) * nbytes // ranks


def _numbers() -> list[str]:
    return [field.name for field in fields(Meter) if field.name not in (*ITEMIZED, "original_ranks")]
