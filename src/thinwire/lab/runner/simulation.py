"""All ranks of a run in one process: the same values as real processes give, on as few cores as there are."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import torch

import thinwire
from thinwire import inspect, simulate
from thinwire.lab.recording.runs import Run
from thinwire.lab.recording.warning_log import told_warnings
from thinwire.lab.runner import machine
from thinwire.lab.runner.clocks import OwnClock
from thinwire.lab.runner.learner import Task, task_of
from thinwire.lab.runner.plan import Plan
from thinwire.lab.runner.run_folder import Place
from thinwire.lab.runner.straggler import factor_of
from thinwire.lab.runner.train_loop import Trainer


def run(plans: list[Plan], hear: Callable[[dict[str, Any]], None], places: list[Place] | None = None) -> None:
    """Run plans one after the other, each at its place; `hear` gets what happens, as from real ranks."""

    def tell(**event: Any) -> None:
        hear(event)

    for number, plan in enumerate(plans):
        tell(begins=number)
        task = task_of(plan)
        tell(steps=task.steps, metric=task.workload.metric)
        try:
            made = train(plan, task, tell, places[number] if places else Place())
        except (thinwire.NonFiniteError, ValueError) as error:
            tell(failed=str(error), diverged=isinstance(error, thinwire.NonFiniteError))
        else:
            tell(done=asdict(made))


def train(plan: Plan, task: Task, tell: Callable[..., None], place: Place = Place()) -> Run:
    """Train all ranks.

    Its seconds are those of one rank: what it computes, encodes and decodes, as if it had a core of its own.
    """
    cluster = simulate.InProcessCluster(plan.size)

    def clock(rank: int, meter: inspect.Meter) -> OwnClock:
        return OwnClock(meter, lambda: cluster.exchange_seconds[rank], factor_of(plan.straggler, rank, plan.size))

    def run_in_parallel(trainer: Trainer) -> None:
        """Ranks need not take turns if their model draws nothing, and they have drawn what they begin with."""
        context = trainer.context
        context.barrier()
        if context.rank == 0 and not trainer.draws:
            cluster.set_max_running(max(1, machine.cores() // plan.threads))
        context.barrier()

    def one_rank() -> Run | None:
        torch.set_num_threads(plan.threads)
        trainer = Trainer(plan, task, tell, clock, place, warned, after_first=lambda: run_in_parallel(trainer))
        if trainer.context.rank == 0:
            trainer.warm_up()
        return trainer.train()

    with _as_planned(plan.threads), told_warnings() as warned:
        made, *_ = cluster.run(one_rank)
    assert made is not None, "rank 0 has the run"
    return made


@contextmanager
def _as_planned(threads: int) -> Iterator[None]:
    """With the threads of a plan, and its method."""
    before, method = torch.get_num_threads(), os.environ.pop(thinwire.Replicator.VARIABLE, None)
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        if method is not None:
            os.environ[thinwire.Replicator.VARIABLE] = method
