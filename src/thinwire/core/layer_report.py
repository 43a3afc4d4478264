from typing import NamedTuple


class Layer(NamedTuple):
    """The bytes that one rank has sent for a unit so far, and the norm of its residual."""

    names: tuple[str, ...]  # of its parameters
    kind: str  # conv, dense, recurrent, embedding, attention, norm, other; or "small ones", "joined ones" (fused)
    elements: int
    dense_bytes: int  # the gradients themselves
    payload_bytes: int  # the messages that this rank encoded for them
    residual: float | None  # the Euclidean norm of the residual; None if the reducer keeps none

    @property
    def ratio(self) -> float:
        """The compression ratio: bytes of the gradients divided by bytes of the payload."""
        return self.dense_bytes / self.payload_bytes if self.payload_bytes else 1.0
