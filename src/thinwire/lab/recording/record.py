"""Records a run while it trains, and makes the `Run` from it."""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from thinwire import inspect
from thinwire.lab.links import Link
from thinwire.lab.recording.layer_history import Layers
from thinwire.lab.recording.learned_codes import Codes
from thinwire.lab.recording.phases import Phases, served
from thinwire.lab.recording.runs import CONSENSUS, WORST, Run, commit, validation_name
from thinwire.lab.runner import machine
from thinwire.lab.runner.learner import Learner, Task
from thinwire.lab.runner.plan import Plan
from thinwire.lab.sizing.link_model import link_seconds
from thinwire.lab.tasks.workloads.user_task import digest

MOST_POINTS = 200  # of a history; longer runs are averaged over this many intervals


class Record:
    """One rank's record of a run, step by step."""

    def __init__(self, plan: Plan, task: Task, warned: list[str]) -> None:
        self.plan, self.task, self.warned = plan, task, warned
        self.steps = 0  # steps so far
        self._losses = torch.zeros(task.steps)  # one tensor: a small one per step would fragment memory
        self.payload: list[int] = []
        self.link: list[int] = []
        self.seconds: list[float] = []
        self.evaluations: list[dict[str, float]] = []
        self.layers, self.phases, self.codes = Layers(), Phases(), Codes()
        self.resumed: list[dict[str, Any]] = []  # the interruptions of the run
        self._commit = commit()  # of the code as loaded, even if a commit is made while it runs
        self._took = {"wall": 0.0, "cpu": 0.0}  # seconds until the last checkpoint
        self._since = time.monotonic(), time.process_time()
        self._due = {round((i + 1) * task.steps / task.evaluations) for i in range(task.evaluations)}

    @property
    def losses(self) -> Tensor:
        return self._losses[: self.steps]

    def step(self, loss: Tensor, meter: inspect.Meter, seconds: float) -> None:
        self._losses[self.steps] = loss
        self.steps += 1
        self.payload.append(self._payload(meter))
        self.link.append(meter.link_bytes)
        self.seconds.append(seconds)

    def count_again(self, meter: inspect.Meter) -> None:
        """Update the bytes of the last step: messages in flight when it was recorded have landed now."""
        self.payload[-1], self.link[-1] = self._payload(meter), meter.link_bytes

    def _payload(self, meter: inspect.Meter) -> int:
        return 0 if self.plan.alone else meter.payload_bytes  # a rank alone sends nothing

    def is_due(self, ahead: int = 0) -> bool:
        """Whether the model is evaluated now, or `ahead` steps later."""
        return self.steps + ahead in self._due

    @property
    def is_last(self) -> bool:
        return self.steps == self.task.steps

    def state_dict(self) -> dict[str, Any]:
        """Everything recorded so far; a resumed run is recorded as one run."""
        return {
            "losses": self.losses.clone(),
            "commit": self._commit,
            "payload": torch.tensor(self.payload, dtype=torch.int64),
            "link": torch.tensor(self.link, dtype=torch.int64),
            "seconds": torch.tensor(self.seconds, dtype=torch.float64),
            "evaluations": self.evaluations,
            "resumed": self.resumed,
            "warned": list(self.warned),
            "took": self.took(),
            "parts": [part.state_dict() for part in self._parts],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps, self._commit = len(state["losses"]), state["commit"]
        self._losses[: self.steps] = state["losses"]
        self.payload, self.link, self.seconds = (state[name].tolist() for name in ("payload", "link", "seconds"))
        self.evaluations, self._took = state["evaluations"], state["took"]
        self.resumed = [*state["resumed"], {"step": self.steps, "commit": commit()}]
        self.warned[:0] = [warning for warning in state["warned"] if warning not in self.warned]
        for part, saved in zip(self._parts, state["parts"], strict=True):
            part.load_state_dict(saved)

    @property
    def _parts(self) -> list[Layers | Phases | Codes]:
        return [self.layers, self.phases, self.codes]

    def took(self) -> dict[str, float]:
        """Wall-clock and CPU seconds of this process so far, evaluations included."""
        wall, cpu = self._since
        spent = {"wall": time.monotonic() - wall, "cpu": time.process_time() - cpu}
        return {name: self._took[name] + spent[name] for name in spent}

    def evaluate(
        self, learner: Learner, model: nn.Module | None = None, cores: int | None = None, validate: bool = False
    ) -> dict[str, float]:
        """The metrics of a model: by default the learner's own, computed on all cores."""
        rng_state = torch.get_rng_state()  # evaluation must not change the random numbers of training
        torch.set_num_threads(cores or machine.cores())
        metrics = learner.evaluate(model, validate)
        torch.set_num_threads(self.plan.threads)
        torch.set_rng_state(rng_state)
        return metrics

    def add(
        self,
        metrics: dict[str, float],
        consensus: float | None,
        of_each: Sequence[float] = (),
        of_others: Mapping[str, float] | None = None,
    ) -> dict[str, float]:
        """Record an evaluation and return its metrics.

        For replicas that differ, these include the consensus distance and, at the end, the metric of the worst replica;
        for methods with other models, such as a leader, also the metric of these.
        """
        workload = self.task.workload
        metrics = metrics | {f"{name}_{workload.metric}": value for name, value in (of_others or {}).items()}
        if consensus is not None:
            metrics = metrics | {CONSENSUS: consensus}
        if of_each:
            metrics = metrics | {f"{WORST}{workload.metric}": (min if workload.better == "higher" else max)(of_each)}
        self.evaluations.append({"step": self.steps} | metrics)
        return metrics

    def run(
        self,
        method: str,
        losses: Tensor,
        meter: dict[str, float],
        total: float,
        compute: float,
        wire: int | None,
        payload_by_unit: dict[str, int],
        links: dict[str, Any],
        groups: dict[str, Any],
        carried: Sequence[int],
        learned: dict[str, Any],
        cpu: float,
    ) -> Run:
        """The run, from the mean losses, the counts of the busiest rank, the longest time, all CPU time."""
        plan, workload, best = self.plan, self.task.workload, self._best()
        parts = {name: meter[f"{name}_seconds"] for name in ("encode", "exchange", "decode")}
        seconds = [*self.seconds[:-1], max(total, self.seconds[-1])]
        if plan.modeled:
            assert plan.link is not None
            link = Link.parse(plan.link)
            busiest = max(nbytes for rank, nbytes in enumerate(carried) if link.is_limited(rank))
            on_link = link_seconds(self.link, busiest, min(link.up, link.down))
            seconds = [own + modeled for own, modeled in zip(seconds, on_link, strict=True)]
            parts["exchange"] = on_link[-1]
        parameters = sum(p.numel() for p in workload.model().parameters())
        counted = {name: int(meter[f"{name}_bytes"]) for name in ("dense", "payload", "link")}
        counted["dense"] *= plan.accumulate  # what would be sent if the gradients of each batch were exchanged
        counted["payload"] *= not plan.alone
        kinds = self.layers.kinds(payload_by_unit, self.task.steps)
        for kind in kinds.values():
            kind["dense"] *= plan.accumulate
            kind["payload"] *= not plan.alone
        return Run(
            workload=plan.workload,
            method=method,
            label=plan.label,
            variant=plan.variant,
            ranks=plan.ranks,
            transport=plan.transport,
            link=plan.link,
            modeled=plan.modeled,
            seed=plan.seed,
            steps=self.task.steps,
            metrics={name: value for name, value in best.items() if name != "step"},
            best_step=int(best["step"]),
            metric=workload.metric,
            better=workload.better,
            bytes=counted if wire is None else counted | {"wire": wire},
            ratio=meter["ratio"] * plan.accumulate,
            seconds={"total": seconds[-1], "compute": compute} | parts,
            history=self._history(losses, seconds),
            evaluations=[
                {
                    "payload_bytes": self.payload[step - 1],
                    "link_bytes": self.link[step - 1],
                    "seconds": round(seconds[step - 1], 6),
                }
                | evaluation
                for evaluation in self.evaluations
                for step in [int(evaluation["step"])]
            ],
            kinds=kinds,
            layers=self.layers.as_list(),
            links=links,
            factored=self.phases.as_dict(parameters),
            groups=groups,
            server=served(plan.method, carried),
            learned=learned,
            parameters=parameters,
            batch=self.task.batch * (plan.ranks - plan.size + self.task.trainers),
            examples=self.task.batch * self.task.trainers * plan.accumulate,
            budget=plan.budget,
            threads=plan.threads,
            source=digest(plan.workload),
            shards=plan.shards,
            straggler=plan.straggler,
            machine=machine.described(),
            plan=plan.as_dict(),
            command=plan.command(),
            took={"wall": round(self.took()["wall"], 3), "cpu": round(cpu, 3)},
            resumed=self.resumed,
            warnings=self.warned,
            commit=self._commit,
        )

    def _best(self) -> dict[str, float]:
        """The reported evaluation: the best by validation if there are validation examples, else the last one.

        Metrics that only the last evaluation has (of the worst replica) are added to it.
        """
        workload, last = self.task.workload, self.evaluations[-1]
        name = validation_name(workload.metric)
        if name not in last:
            return last
        finite = [evaluation for evaluation in self.evaluations if math.isfinite(evaluation[name])] or [last]
        best = (max if workload.better == "higher" else min)(finite, key=lambda evaluation: evaluation[name])
        return {name: value for name, value in last.items() if name.startswith(WORST)} | best

    def _history(self, losses: Tensor, seconds: list[float]) -> list[dict[str, float]]:
        interval = -(-len(losses) // MOST_POINTS)
        ends = [*range(interval, len(losses), interval), len(losses)]
        return [
            {
                "step": end,
                "loss": round(float(losses[start:end].mean()), 6),
                "payload_bytes": self.payload[end - 1],
                "link_bytes": self.link[end - 1],
                "seconds": round(seconds[end - 1], 6),
            }
            for start, end in zip([0, *ends], ends, strict=False)
        ]
