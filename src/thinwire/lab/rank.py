"""What torchrun starts on each rank: train by each plan in turn, and tell the parent how it goes."""

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

import thinwire
from thinwire.lab import links
from thinwire.lab.clocks import Clock
from thinwire.lab.learner import task_of
from thinwire.lab.plan import Plan
from thinwire.lab.record import told_warnings
from thinwire.lab.straggler import factor_of
from thinwire.lab.training import AttachError, Trainer

TOLD = "thinwire-event "  # on standard output, before what is meant for the parent
MOST_LETTERS = 2000  # of an error, told in one piece


def main() -> None:
    plans, done_folder = [Plan(**said) for said in json.loads(sys.argv[1])], Path(sys.argv[2])
    folders = [Path(folder) for folder in sys.argv[3:]]
    os.environ.pop(thinwire.Replicator.VARIABLE, None)  # plans say it
    # The ranks meet over the store, which they reach before they enter their namespaces.
    store, rank, size = next(rendezvous("env://"))
    links.enter(rank)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)

    def tell(**event: Any) -> None:
        if rank == 0:
            # In one piece, and short enough to stay one: others write to the same pipe.
            sys.stdout.write(f"{TOLD}{json.dumps(event)}\n")
            sys.stdout.flush()

    for number, plan in enumerate(plans):
        torch.set_num_threads(plan.threads)
        tell(begins=number)
        task = task_of(plan)
        tell(steps=task.steps, metric=task.workload.metric)

        def clock(rank: int, meter: thinwire.Meter, plan: Plan = plan) -> Clock:
            return Clock(factor_of(plan.straggler, rank, plan.ranks))

        try:
            with told_warnings() as warned:
                trainer = Trainer(plan, task, tell, clock, folders[number] if folders else None)
                trainer.warm_up()
                run = trainer.train(warned)
        except (thinwire.NonFiniteError, AttachError) as error:  # which all ranks meet alike
            tell(failed=str(error)[:MOST_LETTERS])
        else:
            if run is not None:
                done = done_folder / f"{number}.json"
                done.write_text(json.dumps(asdict(run)))
                tell(done=str(done))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
