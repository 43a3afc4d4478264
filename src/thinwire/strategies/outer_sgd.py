from dataclasses import dataclass

from torch import Tensor

from ..core.described import Described


@dataclass(frozen=True, repr=False)
class OuterSGD(Described):
    """The outer optimizer of LocalSGD: SGD on pseudo-gradients. The default moves to the mean of the replicas.

    Examples:
        >>> from thinwire import Identity, LocalSGD, OuterSGD, parse
        >>> diloco = LocalSGD(Identity(), every=50, outer=OuterSGD(0.7, momentum=0.9, nesterov=True))
        >>> parse(repr(diloco)) == diloco
        True
    """

    lr: float = 1.0  # below 1: smaller, more stable steps
    momentum: float = 0.0  # factor on the velocity per synchronization
    nesterov: bool = False  # Nesterov momentum

    def __post_init__(self) -> None:
        if not (isinstance(self.lr, int | float) and 0 < self.lr <= 10):
            raise ValueError(f"OuterSGD takes a learning rate above 0 and up to 10, not {self.lr!r}")
        if not (isinstance(self.momentum, int | float) and 0 <= self.momentum < 1):
            raise ValueError(f"OuterSGD takes a momentum from 0 to below 1, not {self.momentum!r}")
        if self.nesterov and not self.momentum:
            raise ValueError("OuterSGD(nesterov=True) needs a momentum above 0")

    def step(self, anchor: Tensor, delta: Tensor, velocity: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The next anchor and velocity, from the mean pseudo-gradient `delta` (anchor minus replicas)."""
        if not self.momentum:
            return anchor - (delta if self.lr == 1 else delta * self.lr), None
        assert velocity is not None, "momentum needs a velocity"
        velocity = velocity * self.momentum + delta
        direction = delta + velocity * self.momentum if self.nesterov else velocity
        return anchor - direction * self.lr, velocity
