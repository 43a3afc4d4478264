"""What was said, what it cost: in bytes of buffers that were sent, and in seconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

ITEMIZED = ("payload_by_unit", "sent", "received")


@dataclass
class Meter:
    """Counts one rank's traffic since it was made.

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
    payload_bytes: int = 0  # what this rank had to say
    link_bytes: int = 0  # what its network card carried in the busier direction, exchange by exchange
    dense_link_bytes: int = 0  # what it would have carried for a plain all-reduce of the gradients
    encode_seconds: float = 0.0
    exchange_seconds: float = 0.0  # waiting for the peers and the wire
    decode_seconds: float = 0.0
    skipped: int = 0  # messages dropped because a gradient was not finite
    average_bytes: int = 0  # as link_bytes, for what `handle.average()` asked for
    relearned: int = 0  # times that a learned code was too far off, and learned anew
    code_error: float = 0.0  # of what a learned code stands for, of its norm, when it was last looked at
    consensus: float = 0.0  # how far replicas were from their mean when it was last asked for, of that mean's size
    payload_by_unit: dict[str, int] = field(default_factory=dict)  # the payload's bytes, by unit
    sent: dict[int, int] = field(default_factory=dict)  # bytes that went to each rank
    received: dict[int, int] = field(default_factory=dict)  # bytes that came from each rank
    names: tuple[int, ...] = ()  # of the ranks, if they were others when all were here

    @property
    def ratio(self) -> float:
        """How many times smaller the payload was than the gradients."""
        return self.dense_bytes / self.payload_bytes if self.payload_bytes else 1.0

    def as_dict(self, prefix: str = "thinwire/") -> dict[str, float]:
        """Flat numbers, as loggers take them: all but what is itemized."""
        return {prefix + name: getattr(self, name) for name in (*_numbers(), "ratio")}

    def itemized(self) -> dict[str, dict[Any, int]]:
        """What is counted by layer, or by rank."""
        return {name: dict(getattr(self, name)) for name in ITEMIZED}

    def load(self, numbers: Mapping[str, float], itemized: Mapping[str, Mapping[Any, int]]) -> None:
        """Go on counting from what `as_dict(prefix="")` and `itemized` gave."""
        missing = set(_numbers()) - numbers.keys()
        if missing:
            raise ValueError(f"the meter's {', '.join(sorted(missing))} cannot be gone on from")
        for name in _numbers():
            setattr(self, name, numbers[name])
        for name in ITEMIZED:
            setattr(self, name, dict(itemized.get(name, {})))

    def count_payload(self, unit: str, nbytes: int) -> None:
        """Note a message that this rank has encoded."""
        self.payload_bytes += nbytes
        self.payload_by_unit[unit] = self.payload_by_unit.get(unit, 0) + nbytes

    def count_carried(self, sent: Mapping[int, int], received: Mapping[int, int]) -> None:
        """Note an exchange: how many bytes went to which rank, and came from which."""
        self.link_bytes += max(sum(sent.values()), sum(received.values()))
        for counted, new in ((self.sent, sent), (self.received, received)):
            for rank, nbytes in new.items():
                name = self.names[rank] if self.names else rank
                counted[name] = counted.get(name, 0) + nbytes

    def add(self, other: "Meter") -> None:
        """Count what was counted aside."""
        for name in _numbers():
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ITEMIZED:
            mine = getattr(self, name)
            for key, nbytes in getattr(other, name).items():
                mine[key] = mine.get(key, 0) + nbytes

    def count_dense(self, nbytes: int, ranks: int) -> None:
        """Note gradients that are about to be exchanged by some method."""
        self.dense_bytes += nbytes
        self.dense_link_bytes += 2 * (ranks - 1) * nbytes // ranks


def _numbers() -> list[str]:
    return [field.name for field in fields(Meter) if field.name not in (*ITEMIZED, "names")]
