from dataclasses import dataclass

from torch import Tensor

from ..core.described import Described


@dataclass(frozen=True, repr=False)
class OuterSGD(Described):
    """What becomes of the way that replicas went since they last met, on average: by default, they go all of it."""

    lr: float = 1.0  # below 1: steadier
    momentum: float = 0.0  # of earlier ways that goes on
    nesterov: bool = False  # look ahead by the momentum

    def __post_init__(self) -> None:
        if not (isinstance(self.lr, int | float) and 0 < self.lr <= 10):
            raise ValueError(f"OuterSGD takes a learning rate above 0 and up to 10, not {self.lr!r}")
        if not (isinstance(self.momentum, int | float) and 0 <= self.momentum < 1):
            raise ValueError(f"OuterSGD takes a momentum from 0 to below 1, not {self.momentum!r}")
        if self.nesterov and not self.momentum:
            raise ValueError("OuterSGD(nesterov=True) needs a momentum above 0")

    def step(self, anchor: Tensor, way: Tensor, velocity: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Where all go from an anchor, by the mean way (from replicas back to it), and the next velocity."""
        if not self.momentum:
            return anchor - (way if self.lr == 1 else way * self.lr), None
        assert velocity is not None, "momentum has something to go on from"
        velocity = velocity * self.momentum + way
        direction = way + velocity * self.momentum if self.nesterov else velocity
        return anchor - direction * self.lr, velocity
