"""A PowerSGD step with error feedback on ResNet-50's shapes, without a network, against copying the gradients once."""

import torch

import thinwire
from benchmarks.timing import interleaved
from thinwire.lab import models

BARS = {1: 4.5, 4: 6.5}  # at most so many copies, by rank


def run(repeats: int = 12) -> list[tuple[str, float, float | None]]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    replica = thinwire.replica_of(models.named("resnet50").build())
    gradients = {name: torch.randn_like(p) for name, p in replica.parameters.items()}
    source = torch.randn(sum(g.numel() for g in gradients.values()))
    target = torch.empty_like(source)
    jobs = {"copy": lambda: target.copy_(source)}
    for rank in BARS:
        jobs[f"rank {rank}"] = step_of(
            thinwire.DataParallel(thinwire.Feedback(thinwire.PowerSGD(rank))), replica, gradients
        )
    best = interleaved(jobs, repeats)
    return [
        (
            f"PowerSGD({rank}) step with feedback, resnet50, 1 thread / copy",
            best[f"rank {rank}"] / best["copy"],
            bar,
        )
        for rank, bar in BARS.items()
    ]


def step_of(strategy, replica, gradients):
    sender = thinwire.Simulated(1)
    units, held = strategy.units(replica), {"state": strategy.init(replica)}

    @torch.no_grad()
    def step():
        # The gradients are replaced by their approximations, which cost the same to approximate again.
        (outcome,) = sender.run([strategy.exchange(units, gradients, 1, held["state"])])
        held["state"] = outcome.state

    return step
