"""Does once, in the process from which all ranks are forked, what every rank would do at first use.

Importing this module loads the compiled loops of all methods. It starts no thread, since a fork does not copy threads.
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
    generator = torch.Generator().manual_seed(0)
    for p in (p for model in models for p in model.parameters()):
        p.grad = torch.randn(p.shape, generator=generator)
    replicas = [simulate.replica_of(model, rank=rank, size=len(models)) for rank, model in enumerate(models)]
    ReferenceRun(thinwire.strategy_of(method), replicas).before_update()


sgd(classifier())  # for the first optimizer, torch imports its compiler, which takes as long as importing torch


def rotated_names() -> tuple[str, ...]:
    """The methods, starting at another one for each pytest worker: what one has compiled, the others only load."""
    worker, workers = os.environ.get("PYTEST_XDIST_WORKER", "gw0"), os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")
    first = int(worker.removeprefix("gw")) * len(NAMES) // int(workers)
    return NAMES[first:] + NAMES[:first]


for name in rotated_names():
    use(name)
gc.collect()
gc.freeze()  # a garbage collection in a forked process would touch, and so copy, all these objects
