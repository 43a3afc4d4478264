"""What torchrun starts on each rank: train by each plan in turn, and tell the parent how it goes."""

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
from thinwire.lab.recording.warning_log import told_warnings
from thinwire.lab.runner.clocks import Clock
from thinwire.lab.runner.learner import task_of
from thinwire.lab.runner.plan import Plan
from thinwire.lab.runner.run_folder import Place
from thinwire.lab.runner.straggler import factor_of
from thinwire.lab.runner.train_loop import AttachError, Tell, Trainer

TOLD = "thinwire-event "  # on standard output, before what is meant for the parent
MOST_LETTERS = 2000  # of an error, told in one piece


def main() -> None:
    plans, done_folder = [Plan(**said) for said in json.loads(sys.argv[1])], Path(sys.argv[2])
    places = [Place(folder and Path(folder), minutes) for folder, minutes in json.loads(sys.argv[3])]
    os.environ.pop(thinwire.Replicator.VARIABLE, None)  # plans say it
    # The ranks meet over the store, which they reach before they enter their namespaces.
    store, rank, size = next(rendezvous("env://"))
    links.enter(rank)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)

    numbers = count()

    def tell(**event: Any) -> None:
        if rank != 0:
            return
        if "done" in event:  # too long for one piece of a pipe
            done = done_folder / f"{next(numbers)}.json"
            done.write_text(json.dumps(event["done"]))
            event = {"done": str(done)}
        # In one piece, and short enough to stay one: others write to the same pipe.
        sys.stdout.write(f"{TOLD}{json.dumps(event)}\n")
        sys.stdout.flush()

    train(plans, tell, places)
    dist.destroy_process_group()


def train(plans: list[Plan], tell: Tell, places: list[Place]) -> None:
    """Train by each plan in turn, as the rank that this process is; rank 0 tells of the run that came of it."""
    for number, plan in enumerate(plans):
        torch.set_num_threads(plan.threads)
        tell(begins=number)
        task = task_of(plan)
        tell(steps=task.steps, metric=task.workload.metric)

        def clock(rank: int, meter: inspect.Meter, plan: Plan = plan) -> Clock:
            return Clock(factor_of(plan.straggler, rank, plan.size))

        try:
            with told_warnings() as warned:
                trainer = Trainer(plan, task, tell, clock, places[number] if places else Place(), warned)
                trainer.warm_up()
                run = trainer.train()
        except (thinwire.NonFiniteError, AttachError) as error:  # which all ranks meet alike
            tell(failed=str(error)[:MOST_LETTERS], diverged=isinstance(error, thinwire.NonFiniteError))
        else:
            if run is not None:
                tell(done=asdict(run))


if __name__ == "__main__":
    main()
