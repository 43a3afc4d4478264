"""What was said, what it cost: in bytes of buffers that were sent, and in seconds."""

from dataclasses import dataclass, fields


@dataclass
class Meter:
    """Counts one rank's traffic since it was made."""

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

    @property
    def ratio(self) -> float:
        """How many times smaller the payload was than the gradients."""
        return self.dense_bytes / self.payload_bytes if self.payload_bytes else 1.0

    def as_dict(self, prefix: str = "thinwire/") -> dict[str, float]:
        """Flat numbers, as loggers take them."""
        numbers = {prefix + field.name: getattr(self, field.name) for field in fields(self)}
        return numbers | {prefix + "ratio": self.ratio}

    def load(self, numbers: dict[str, float]) -> None:
        """Go on counting from what `as_dict(prefix="")` gave."""
        missing = {field.name for field in fields(self)} - numbers.keys()
        if missing:
            raise ValueError(f"the meter's {', '.join(sorted(missing))} cannot be gone on from")
        for field in fields(self):
            setattr(self, field.name, numbers[field.name])

    def count_dense(self, nbytes: int, ranks: int) -> None:
        """Note gradients that are about to be exchanged by some method."""
        self.dense_bytes += nbytes
        self.dense_link_bytes += 2 * (ranks - 1) * nbytes // ranks
