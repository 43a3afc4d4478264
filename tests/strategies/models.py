"""Small models on simulated ranks, trained as a script would train them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from thinwire.extend import Replica, Strategy
from thinwire.runtime.preparation import prepared

from ..reference_run import ReferenceRun

Make = Callable[[nn.Module], Optimizer]


class Ranks:
    """All ranks of a run in one process; each rank has its own examples."""

    def __init__(
        self,
        strategy: Strategy,
        size: int,
        make: Make = lambda model: SGD(model.parameters(), lr=0.1),
        hosts: tuple[str, ...] = (),
        build: Callable[[], nn.Module] = lambda: model(),
    ) -> None:
        self.models = [build() for _ in range(size)]
        self.optimizers = [make(m) for m in self.models]
        self.replicas: list[Replica] = [
            prepared(strategy, m, o, None, r, size, hosts)
            for r, (m, o) in enumerate(zip(self.models, self.optimizers, strict=True))
        ]
        self.reference = ReferenceRun(strategy, self.replicas)
        self.step = 0

    def train(self, steps: int) -> "Ranks":
        for _ in range(steps):
            losses = [loss_of(m, self.step, rank) for rank, m in enumerate(self.models)]
            for optimizer, loss in zip(self.optimizers, losses, strict=True):
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
            self.reference.before_update([loss.item() for loss in losses])
            for optimizer in self.optimizers:
                optimizer.step()
            self.reference.after_update()
            self.step += 1
        return self

    def parameters(self, rank: int = 0) -> dict[str, Tensor]:
        return {name: p.detach().clone() for name, p in self.models[rank].named_parameters()}

    def max_difference(self) -> float:
        """The largest difference between two replicas."""
        first = self.parameters()
        others = [self.parameters(rank) for rank in range(1, len(self.models))]
        return max(float((other[n] - x).abs().max()) for other in others for n, x in first.items() if x.numel())


def model() -> nn.Module:
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 3))


def loss_of(m: nn.Module, step: int, rank: int) -> Tensor:
    x = torch.randn(8, 6, generator=torch.Generator().manual_seed(1000 * step + rank))
    rule = torch.randn(6, 3, generator=torch.Generator().manual_seed(7))
    return nn.functional.cross_entropy(m(x), (x @ rule).argmax(1))


def close(actual: dict[str, Tensor], expected: dict[str, Tensor], **tolerances: Any) -> None:
    for name, x in actual.items():
        torch.testing.assert_close(x, expected[name], **tolerances)
