"""What is noted while a run goes on, and the run that comes of it."""

import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import thinwire
from thinwire.lab import machine
from thinwire.lab.codes import Codes
from thinwire.lab.layers import Layers
from thinwire.lab.learner import Learner, Task
from thinwire.lab.links import Link
from thinwire.lab.phases import Phases, served
from thinwire.lab.plan import Plan
from thinwire.lab.runs import CONSENSUS, WORST, Run
from thinwire.lab.workloads.own import digest

OURS = Path(__file__).parents[1]
MOST_POINTS = 1000  # of a history; longer runs are told in so many stretches


class Record:
    """One rank's notes, step by step."""

    def __init__(self, plan: Plan, task: Task) -> None:
        self.plan, self.task = plan, task
        self.losses: list[Tensor] = []
        self.payload: list[int] = []
        self.link: list[int] = []
        self.seconds: list[float] = []
        self.evaluations: list[dict[str, float]] = []
        self.layers, self.phases, self.codes = Layers(), Phases(), Codes()
        count = min(plan.evaluations, task.steps)
        self._due = {round((i + 1) * task.steps / count) for i in range(count)}

    def step(self, loss: Tensor, meter: thinwire.Meter, seconds: float) -> None:
        self.losses.append(loss)
        self.payload.append(meter.payload_bytes)
        self.link.append(meter.link_bytes)
        self.seconds.append(seconds)

    def count_again(self, meter: thinwire.Meter) -> None:
        """Count what was still on its way when the last step was noted: it has landed now."""
        self.payload[-1], self.link[-1] = meter.payload_bytes, meter.link_bytes

    def is_due(self, ahead: int = 0) -> bool:
        """Whether the model is to be evaluated now, or so many steps later."""
        return len(self.losses) + ahead in self._due

    @property
    def is_last(self) -> bool:
        return len(self.losses) == self.task.steps

    def judge(self, learner: Learner, model: nn.Module | None = None, cores: int | None = None) -> dict[str, float]:
        """What a model is worth: by default a learner's own, and with all cores."""
        draws = torch.get_rng_state()  # what it draws does not change what is drawn in training
        torch.set_num_threads(cores or machine.cores())
        metrics = learner.evaluate(model)
        torch.set_num_threads(self.plan.threads)
        torch.set_rng_state(draws)
        return metrics

    def note(
        self,
        metrics: dict[str, float],
        consensus: float | None,
        of_each: Sequence[float] = (),
        of_others: Mapping[str, float] | None = None,
    ) -> dict[str, float]:
        """Note an evaluation; of replicas that differ also how far they do, and at the end how good the worst is.

        And how good other models are that a method has, such as a leader.
        """
        workload = self.task.workload
        metrics = metrics | {f"{name}_{workload.metric}": value for name, value in (of_others or {}).items()}
        if consensus is not None:
            metrics = metrics | {CONSENSUS: consensus}
        if of_each:
            metrics = metrics | {f"{WORST}{workload.metric}": (min if workload.better == "higher" else max)(of_each)}
        self.evaluations.append({"step": len(self.losses)} | metrics)
        return metrics

    def run(
        self,
        method: str,
        losses: Tensor,
        meter: dict[str, float],
        total: float,
        compute: float,
        wire: int | None,
        said: dict[str, int],
        links: dict[str, Any],
        groups: dict[str, Any],
        carried: Sequence[int],
        learned: dict[str, Any],
        warned: list[str],
    ) -> Run:
        """The run: the mean losses over the ranks, the counts of the rank whose link carried most, the longest time.

        And what the links of all ranks carried.
        """
        plan, workload = self.plan, self.task.workload
        parts = {name: meter[f"{name}_seconds"] for name in ("encode", "exchange", "decode")}
        seconds = [*self.seconds[:-1], max(total, self.seconds[-1])]
        if plan.modelled:
            assert plan.link is not None
            link = Link.parse(plan.link)
            slowest = max(nbytes for rank, nbytes in enumerate(carried) if link.is_limited(rank))
            busiest = slowest / self.link[-1] if self.link[-1] else 1.0
            wired = [nbytes * busiest * 8 / min(link.up, link.down) for nbytes in self.link]
            seconds = [here + there for here, there in zip(seconds, wired, strict=True)]
            parts["exchange"] = wired[-1]
        parameters = sum(p.numel() for p in workload.model().parameters())
        counted = {name: int(meter[f"{name}_bytes"]) for name in ("dense", "payload", "link")}
        return Run(
            workload=plan.workload,
            method=method,
            label=plan.method,
            ranks=plan.ranks,
            transport=plan.transport,
            link=plan.link,
            modelled=plan.modelled,
            seed=plan.seed,
            steps=self.task.steps,
            metrics={name: value for name, value in self.evaluations[-1].items() if name != "step"},
            metric=workload.metric,
            better=workload.better,
            bytes=counted if wire is None else counted | {"wire": wire},
            ratio=meter["ratio"],
            seconds={"total": seconds[-1], "compute": compute} | parts,
            history=self._history(losses, seconds),
            evaluations=[
                {"payload_bytes": self.payload[step - 1], "seconds": seconds[step - 1]} | noted
                for noted in self.evaluations
                for step in [int(noted["step"])]
            ],
            kinds=self.layers.kinds(said, self.task.steps),
            layers=self.layers.told(),
            links=links,
            factored=self.phases.told(parameters),
            groups=groups,
            server=served(plan.method, carried),
            learned=learned,
            parameters=parameters,
            batch=self.task.batch * self.task.trainers,
            budget=plan.budget,
            threads=plan.threads,
            source=digest(plan.workload),
            shards=plan.shards,
            straggler=plan.straggler,
            machine=machine.described(),
            command=plan.command(),
            warnings=warned,
        )

    def _history(self, losses: Tensor, seconds: list[float]) -> list[dict[str, float]]:
        stretch = -(-len(losses) // MOST_POINTS)
        ends = [*range(stretch, len(losses), stretch), len(losses)]
        return [
            {
                "step": end,
                "loss": round(float(losses[start:end].mean()), 6),
                "payload_bytes": self.payload[end - 1],
                "seconds": round(seconds[end - 1], 6),
            }
            for start, end in zip([0, *ends], ends, strict=False)
        ]


def links_of(rank: int, meter: thinwire.Meter) -> dict[str, Any]:
    """Bytes by the rank at the other end, as they come back from run.json: its names are texts."""
    ways = {"sent": meter.sent, "received": meter.received}
    return {"rank": rank} | {
        way: {str(other): nbytes for other, nbytes in sorted(counted.items()) if nbytes}
        for way, counted in ways.items()
    }


@contextmanager
def told_warnings() -> Iterator[list[str]]:
    """Collect what thinwire warns of; what others warn of is printed, as it would be without this."""
    told: list[str] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            yield told
    finally:
        for warning in caught:
            _tell(warning, told)


def _tell(warning: warnings.WarningMessage, told: list[str]) -> None:
    message = str(warning.message)
    if not Path(warning.filename).is_relative_to(OURS):
        print(f"{warning.filename}:{warning.lineno}: {warning.category.__name__}: {message}", file=sys.stderr)
    elif message not in told:
        told.append(message)
