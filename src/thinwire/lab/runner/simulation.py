"""All ranks of a run in one process: the same results as with real processes, on any number of cores."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import torch

import thinwire
from thinwire import inspect, simulate
from thinwire.lab.recording.runs import Run
from thinwire.lab.recording.warning_log import collected_warnings
from thinwire.lab.runner import machine
from thinwire.lab.runner.clocks import OwnClock
from thinwire.lab.runner.learner import Task, task_of
from thinwire.lab.runner.plan import Plan
from thinwire.lab.runner.run_folder import RunFolder
from thinwire.lab.runner.straggler import factor_of
from thinwire.lab.runner.train_loop import Trainer


def run(plans: list[Plan], on_event: Callable[[dict[str, Any]], None], folders: list[RunFolder] | None = None) -> None:
    """Run plans one after the other, each in its folder; `on_event` receives the same events as from real ranks."""

    def report(**event: Any) -> None:
        on_event(event)

    for number, plan in enumerate(plans):
        report(started=number)
        task = task_of(plan)
        report(steps=task.steps, metric=task.workload.metric)
        try:
            result = train(plan, task, report, folders[number] if folders else RunFolder())
        except (thinwire.NonFiniteError, ValueError) as error:
            report(failed=str(error), diverged=isinstance(error, thinwire.NonFiniteError))
        else:
            report(done=asdict(result))


def train(plan: Plan, task: Task, report: Callable[..., None], folder: RunFolder = RunFolder()) -> Run:
    """Train all ranks.

    The seconds of the run are those of one rank: it computes, encodes and decodes as if it had a core of its own.
    """
    cluster = simulate.InProcessCluster(plan.size)

    def clock(rank: int, meter: inspect.Meter) -> OwnClock:
        return OwnClock(meter, lambda: cluster.exchange_seconds[rank], factor_of(plan.straggler, rank, plan.size))

    def run_in_parallel(trainer: Trainer) -> None:
        """Let ranks run concurrently after initialization, if the model consumes no random numbers."""
        context = trainer.context
        context.barrier()
        if context.rank == 0 and not trainer.needs_random:
            cluster.set_max_running(max(1, machine.cores() // plan.threads))
        context.barrier()

    def one_rank() -> Run | None:
        torch.set_num_threads(plan.threads)
        trainer = Trainer(plan, task, report, clock, folder, warned, after_first=lambda: run_in_parallel(trainer))
        if trainer.context.rank == 0:
            trainer.warm_up()
        return trainer.train()

    with _settings_of_plan(plan.threads), collected_warnings() as warned:
        result, *_ = cluster.run(one_rank)
    assert result is not None, "rank 0 returns the run"
    return result


@contextmanager
def _settings_of_plan(threads: int) -> Iterator[None]:
    """Use the plan's number of threads, and ignore the environment's method."""
    before, method = torch.get_num_threads(), os.environ.pop(thinwire.Replicator.VARIABLE, None)
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        if method is not None:
            os.environ[thinwire.Replicator.VARIABLE] = method
