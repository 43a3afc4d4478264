from typing import NamedTuple


class Layer(NamedTuple):
    """What one rank has said of a unit so far, and how much it has not."""

    names: tuple[str, ...]  # of its parameters
    kind: str  # conv, dense, recurrent, embedding, attention, norm, other; "small" or "joined ones" share messages
    elements: int
    dense_bytes: int  # the gradients themselves
    payload_bytes: int  # what this rank had to say of them
    residual: float | None  # the norm of what is left unsaid; None where nothing is remembered

    @property
    def ratio(self) -> float:
        """How many times smaller the payload was than the gradients."""
        return self.dense_bytes / self.payload_bytes if self.payload_bytes else 1.0
