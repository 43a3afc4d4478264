"""What methods are measured on: gradients that a run wrote down, or numbers that follow a law."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

import thinwire
from thinwire.lab.recording import captured

LAWS = {"normal": 2.0, "Laplace": 1.0, "GenNorm 0.5": 0.5}  # and their shapes


class Sample(NamedTuple):
    step: int  # 0 of what is no gradient
    name: str
    kind: str  # of layer, or the law
    tensor: Tensor
    layer: str  # its kind, as methods take it


@dataclass(frozen=True)
class Source:
    """Where tensors are from, read or drawn one at a time."""

    title: str
    said: str
    folder: Path | None = None  # of a run
    size: int = 0  # of what is drawn
    seed: int = 1

    def samples(self) -> Iterator[Sample]:
        return self._drawn() if self.folder is None else self._captured(captured.read(self.folder))

    def _captured(self, gradients: captured.Captured) -> Iterator[Sample]:
        for step in gradients.steps:
            for name in gradients.names:
                x = gradients.gradient(step, name)
                if bool(x.isfinite().all()) and bool(x.any()):
                    yield Sample(step, name, gradients.kinds[name], x, gradients.kinds[name])

    def _drawn(self) -> Iterator[Sample]:
        for name, shape in LAWS.items():
            generator = torch.Generator().manual_seed(self.seed)
            shares = torch.rand(self.size, generator=generator, dtype=torch.float64).clamp_(1e-12, 1 - 1e-12)
            x = thinwire.distributions.GeneralizedNormal(shape, 1.0).quantile(shares)
            rows = max(n for n in range(1, isqrt(self.size) + 1) if self.size % n == 0)  # methods may be for matrices
            yield Sample(0, name, name, (x / x.norm()).float().view(rows, -1), "dense")


def of_run(folder: Path) -> Source:
    about = captured.read(folder)
    steps = ", ".join(f"{step:,}" for step in about.steps)
    said = (
        f"Gradients of rank 0 at {'step' if len(about.steps) == 1 else 'steps'} {steps} of {about.length:,}, in "
        f"batches of {about.batch:,}, trained with {about.method}."
    )
    return Source(f"{about.workload}: error against bits", said, folder)


def of_laws(size: int, seed: int = 1) -> Source:
    if size < 1:
        raise ValueError(f"tensors have 1 entry or more, not {size}")
    return Source("Error against bits", f"{size:,} numbers of each law: {', '.join(LAWS)}.", size=size, seed=seed)
