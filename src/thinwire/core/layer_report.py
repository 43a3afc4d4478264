from typing import NamedTuple


class Layer(NamedTuple):
    """What one rank has sent for a unit so far, and its residual."""

    names: tuple[str, ...]  # of its parameters
    kind: str  # conv, dense, recurrent, embedding, attention, norm, other, "small ones" or "joined ones"
    elements: int
    dense_bytes: int  # the gradients themselves
    payload_bytes: int  # what this rank sent for them
    residual: float | None  # its norm; None if the reducer keeps none

    @property
    def ratio(self) -> float:
        """The compression ratio: bytes of the gradients divided by bytes of the payload."""
        return self.dense_bytes / self.payload_bytes if self.payload_bytes else 1.0
