"""A PowerSGD step with error feedback on ResNet-50's shapes, without a network, against copying the gradients once.

Beside it, the same with torch's operations, matrix by matrix and in place, where a matrix stays in the cache for all
operations. thinwire advances all matrices together, so that a round costs one exchange, and writes the new residual
beside the old one, so that a step can be discarded.
"""

from collections.abc import Callable

import torch
from torch import Tensor

import thinwire
from benchmarks.rows import Row, at_most
from benchmarks.timing import interleaved
from thinwire import extend, simulate
from thinwire.lab.tasks import models

TARGETS = {1: 4.5, 4: 6.5}  # the maximum number of copies, by rank


def run(repeats: int = 20) -> list[Row]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    replica = simulate.replica_of(models.named("resnet50").build())
    gradients = {name: torch.randn_like(p) for name, p in replica.parameters.items()}
    source = torch.randn(sum(g.numel() for g in gradients.values()))
    target = torch.empty_like(source)
    jobs: dict[str, Callable[[], object]] = {"copy": lambda: target.copy_(source)}
    for rank in TARGETS:
        method = thinwire.ErrorFeedback(thinwire.PowerSGD(rank))
        jobs[f"PowerSGD({rank})"] = step_of(thinwire.DataParallel(method), replica, gradients)
        jobs[f"torch in place, rank {rank}"] = in_place(rank, list(gradients.values()))
    best = interleaved(jobs, repeats)
    copies = {name: seconds / best["copy"] for name, seconds in best.items() if name != "copy"}
    verdict = {f"PowerSGD({rank})": at_most(copies[f"PowerSGD({rank})"], target) for rank, target in TARGETS.items()}
    return [Row(f"{name}, resnet50, 1 thread / copy", copies[name], verdict.get(name, "")) for name in copies]


def step_of(
    strategy: thinwire.DataParallel, replica: extend.Replica, gradients: dict[str, Tensor]
) -> Callable[[], None]:
    sender = simulate.Simulated(1)
    units, current = strategy.units(replica), {"state": strategy.init(replica)}

    @torch.no_grad()
    def step() -> None:
        # The gradients are replaced by their approximations, which cost the same to approximate again.
        (result,) = sender.run([strategy.exchange(units, gradients, 1, current["state"])])
        current["state"] = result.state

    return step


def in_place(rank: int, gradients: list[Tensor]) -> Callable[[], None]:
    matrices = [g.clone().view(len(g), -1) for g in gradients if g.ndim > 1]
    residuals = [torch.zeros_like(matrix) for matrix in matrices]
    factors = [torch.randn(min(rank, *matrix.shape), matrix.shape[1]) for matrix in matrices]

    def step() -> None:
        for i, (matrix, residual) in enumerate(zip(matrices, residuals, strict=True)):
            residual.add_(matrix)
            basis = torch.linalg.qr((factors[i] @ residual.T).T).Q.T.contiguous()
            factors[i] = basis @ residual
            for column, row in zip(basis, factors[i], strict=True):
                residual.addcmul_(column.unsqueeze(1), row, value=-1)
            torch.mul(basis[0].unsqueeze(1), factors[i][0], out=matrix)
            for column, row in zip(basis[1:], factors[i][1:], strict=True):
                matrix.addcmul_(column.unsqueeze(1), row)

    return step
