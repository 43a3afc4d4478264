"""The tensors that methods are measured on: captured gradients of a run, or samples of known distributions."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from thinwire import inspect
from thinwire.lab.recording import captured

DISTRIBUTIONS = {"normal": 2.0, "Laplace": 1.0, "GenNorm 0.5": 0.5}  # name to shape parameter


class Sample(NamedTuple):
    step: int  # 0 for a sample that is not a gradient
    name: str
    kind: str  # kind of layer, or the name of the distribution
    tensor: Tensor
    layer: str  # layer kind passed to the method


@dataclass(frozen=True)
class Source:
    """A source of tensors, read or sampled one at a time."""

    title: str
    description: str
    folder: Path | None = None  # of a run
    size: int = 0  # entries of a sampled tensor
    seed: int = 1

    def samples(self) -> Iterator[Sample]:
        return self._sampled() if self.folder is None else self._captured(captured.read(self.folder))

    def _captured(self, gradients: captured.Captured) -> Iterator[Sample]:
        for step in gradients.steps:
            for name in gradients.names:
                x = gradients.gradient(step, name)
                if bool(x.isfinite().all()) and bool(x.any()):
                    yield Sample(step, name, gradients.kinds[name], x, gradients.kinds[name])

    def _sampled(self) -> Iterator[Sample]:
        for name, shape in DISTRIBUTIONS.items():
            generator = torch.Generator().manual_seed(self.seed)
            shares = torch.rand(self.size, generator=generator, dtype=torch.float64).clamp_(1e-12, 1 - 1e-12)
            x = inspect.GeneralizedNormal(shape, 1.0).quantile(shares)
            rows = max(n for n in range(1, isqrt(self.size) + 1) if self.size % n == 0)  # some methods need matrices
            yield Sample(0, name, name, (x / x.norm()).float().view(rows, -1), "dense")


def of_run(folder: Path) -> Source:
    about = captured.read(folder)
    steps = ", ".join(f"{step:,}" for step in about.steps)
    description = (
        f"Gradients of rank 0 at {'step' if len(about.steps) == 1 else 'steps'} {steps} of {about.length:,}, in "
        f"batches of {about.batch:,}, trained with {about.method}."
    )
    return Source(f"{about.workload}: error against bits", description, folder)


def of_distributions(size: int, seed: int = 1) -> Source:
    if size < 1:
        raise ValueError(f"a tensor must have 1 entry or more, not {size}")
    description = f"{size:,} samples of each distribution: {', '.join(DISTRIBUTIONS)}."
    return Source("Error against bits", description, size=size, seed=seed)
