"""What every rank would meet the first time, met once in the process that all are forked off.

Importing this loads the compiled loops of all methods. It begins no thread, which would be missing in what is forked.
"""

import gc
import os

import torch

import thinwire
import thinwire.lab
from thinwire import simulate

from ..reference_run import ReferenceRun
from .training import NAMES, classifier, sgd

torch.set_num_threads(1)


def use(method: str) -> None:
    models = [classifier() for _ in range(2)]
    draw = torch.Generator().manual_seed(0)
    for p in (p for model in models for p in model.parameters()):
        p.grad = torch.randn(p.shape, generator=draw)
    replicas = [simulate.replica_of(model, rank=rank, size=len(models)) for rank, model in enumerate(models)]
    ReferenceRun(thinwire.strategy_of(method), replicas).before_update()


sgd(classifier())  # torch imports its compiler for the first optimizer, which takes as long as all of torch


def in_turn() -> tuple[str, ...]:
    """The methods, from another one on for each worker of pytest: what one has compiled, the others only load."""
    worker, workers = os.environ.get("PYTEST_XDIST_WORKER", "gw0"), os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")
    first = int(worker.removeprefix("gw")) * len(NAMES) // int(workers)
    return NAMES[first:] + NAMES[:first]


for name in in_turn():
    use(name)
gc.collect()
gc.freeze()  # a forked process that looked through all of this for garbage would copy it
