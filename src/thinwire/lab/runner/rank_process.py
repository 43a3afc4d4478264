"""The process of one rank, started by torchrun: executes plans in turn and reports events to the parent."""

import json
import os
import sys
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

import thinwire
from thinwire import inspect
from thinwire.lab import links
from thinwire.lab.recording.warning_log import collected_warnings
from thinwire.lab.runner.clocks import Clock
from thinwire.lab.runner.learner import task_of
from thinwire.lab.runner.plan import Plan
from thinwire.lab.runner.run_folder import RunFolder
from thinwire.lab.runner.straggler import factor_of
from thinwire.lab.runner.train_loop import AttachError, Report, Trainer

EVENT_PREFIX = "thinwire-event "  # on standard output, before an event for the parent
LONGEST_ERROR = 2000  # characters, so that the event fits into one write


def main() -> None:
    plans, done_folder = [Plan(**settings) for settings in json.loads(sys.argv[1])], Path(sys.argv[2])
    folders = [RunFolder(folder and Path(folder), minutes) for folder, minutes in json.loads(sys.argv[3])]
    os.environ.pop(thinwire.Replicator.VARIABLE, None)  # the plans name the method
    # The ranks connect to the store before they enter their namespaces, where they could not reach it.
    store, rank, size = next(rendezvous("env://"))
    links.enter(rank)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)

    numbers = count()

    def report(**event: Any) -> None:
        if rank != 0:
            return
        if "done" in event:  # too long for one write to a pipe
            done = done_folder / f"{next(numbers)}.json"
            done.write_text(json.dumps(event["done"]))
            event = {"done": str(done)}
        # In one write, short enough to be atomic: other ranks write to the same pipe.
        sys.stdout.write(f"{EVENT_PREFIX}{json.dumps(event)}\n")
        sys.stdout.flush()

    train(plans, report, folders)
    dist.destroy_process_group()


def train(plans: list[Plan], report: Report, folders: list[RunFolder]) -> None:
    """Execute each plan in turn on this process's rank; rank 0 reports the resulting runs."""
    for number, plan in enumerate(plans):
        torch.set_num_threads(plan.threads)
        report(started=number)
        task = task_of(plan)
        report(steps=task.steps, metric=task.workload.metric)

        def clock(rank: int, meter: inspect.Meter, plan: Plan = plan) -> Clock:
            return Clock(factor_of(plan.straggler, rank, plan.size))

        try:
            with collected_warnings() as warned:
                trainer = Trainer(plan, task, report, clock, folders[number] if folders else RunFolder(), warned)
                trainer.warm_up()
                run = trainer.train()
        except (thinwire.NonFiniteError, AttachError) as error:  # raised on all ranks
            report(failed=str(error)[:LONGEST_ERROR], diverged=isinstance(error, thinwire.NonFiniteError))
        else:
            if run is not None:
                report(done=asdict(run))


if __name__ == "__main__":
    main()
