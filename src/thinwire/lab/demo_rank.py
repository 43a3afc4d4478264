"""What torchrun starts on each rank of the demo: train with each method in turn, tell the parent how it goes."""

import json
import sys
import warnings
from pathlib import Path

import torch.distributed as dist

from thinwire.lab.training import train

REPORT_EVERY = 5  # steps


def main() -> None:
    plan = json.loads(sys.argv[1])
    dist.init_process_group("gloo")
    first = dist.get_rank() == 0

    def tell(**event: object) -> None:
        if first:
            print(json.dumps(event), flush=True)

    for name, method in plan["methods"].items():

        def progress(step: int, loss: float, name: str = name) -> None:
            if step % REPORT_EVERY == 0 or step == plan["steps"]:
                tell(method=name, step=step, loss=loss)

        with warnings.catch_warnings(record=True) as caught:
            run = train(method, plan["steps"], plan["seed"], progress)
        if first:
            run.save(Path(plan["folder"]) / name)
        tell(method=name, done=True, warnings=[str(warning.message) for warning in caught])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
