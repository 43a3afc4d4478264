"""What is noted while a run goes on, and the run that comes of it."""

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

MOST_POINTS = 200  # of a history; longer runs are told in so many stretches


class Record:
    """One rank's notes, step by step."""

    def __init__(self, plan: Plan, task: Task, warned: list[str]) -> None:
        self.plan, self.task, self.warned = plan, task, warned
        self.made = 0  # steps
        self._losses = torch.zeros(task.steps)  # one tensor: small ones of each step would fragment the memory
        self.payload: list[int] = []
        self.link: list[int] = []
        self.seconds: list[float] = []
        self.evaluations: list[dict[str, float]] = []
        self.layers, self.phases, self.codes = Layers(), Phases(), Codes()
        self.resumed: list[dict[str, Any]] = []  # after which steps the run was interrupted
        self._commit = commit()  # of the code that is loaded now, whatever is committed while it runs
        self._took = {"wall": 0.0, "cpu": 0.0}  # seconds until the last checkpoint
        self._since = time.monotonic(), time.process_time()
        self._due = {round((i + 1) * task.steps / task.evaluations) for i in range(task.evaluations)}

    @property
    def losses(self) -> Tensor:
        return self._losses[: self.made]

    def step(self, loss: Tensor, meter: inspect.Meter, seconds: float) -> None:
        self._losses[self.made] = loss
        self.made += 1
        self.payload.append(self._payload(meter))
        self.link.append(meter.link_bytes)
        self.seconds.append(seconds)

    def count_again(self, meter: inspect.Meter) -> None:
        """Count what was still on its way when the last step was noted: it has landed now."""
        self.payload[-1], self.link[-1] = self._payload(meter), meter.link_bytes

    def _payload(self, meter: inspect.Meter) -> int:
        return 0 if self.plan.alone else meter.payload_bytes  # nobody is there to send it to

    def is_due(self, ahead: int = 0) -> bool:
        """Whether the model is to be evaluated now, or so many steps later."""
        return self.made + ahead in self._due

    @property
    def is_last(self) -> bool:
        return self.made == self.task.steps

    def state_dict(self) -> dict[str, Any]:
        """All that was noted so far; a run that goes on from it is told as one."""
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
        self.made, self._commit = len(state["losses"]), state["commit"]
        self._losses[: self.made] = state["losses"]
        self.payload, self.link, self.seconds = (state[name].tolist() for name in ("payload", "link", "seconds"))
        self.evaluations, self._took = state["evaluations"], state["took"]
        self.resumed = [*state["resumed"], {"step": self.made, "commit": commit()}]
        self.warned[:0] = [told for told in state["warned"] if told not in self.warned]
        for part, saved in zip(self._parts, state["parts"], strict=True):
            part.load_state_dict(saved)

    @property
    def _parts(self) -> list[Layers | Phases | Codes]:
        return [self.layers, self.phases, self.codes]

    def took(self) -> dict[str, float]:
        """Seconds of this process so far, evaluations and all: by the clock on the wall, and of its processors."""
        wall, cpu = self._since
        spent = {"wall": time.monotonic() - wall, "cpu": time.process_time() - cpu}
        return {name: self._took[name] + spent[name] for name in spent}

    def judge(
        self, learner: Learner, model: nn.Module | None = None, cores: int | None = None, validate: bool = False
    ) -> dict[str, float]:
        """The metrics of a model: by default a learner's own, and with all cores."""
        draws = torch.get_rng_state()  # what it draws does not change what is drawn in training
        torch.set_num_threads(cores or machine.cores())
        metrics = learner.evaluate(model, validate)
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
        self.evaluations.append({"step": self.made} | metrics)
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
        cpu: float,
    ) -> Run:
        """The run: mean losses, the counts of the rank whose link carried most, the longest time, all CPU seconds."""
        plan, workload, best = self.plan, self.task.workload, self._best()
        parts = {name: meter[f"{name}_seconds"] for name in ("encode", "exchange", "decode")}
        seconds = [*self.seconds[:-1], max(total, self.seconds[-1])]
        if plan.modeled:
            assert plan.link is not None
            link = Link.parse(plan.link)
            busiest = max(nbytes for rank, nbytes in enumerate(carried) if link.is_limited(rank))
            wired = link_seconds(self.link, busiest, min(link.up, link.down))
            seconds = [here + there for here, there in zip(seconds, wired, strict=True)]
            parts["exchange"] = wired[-1]
        parameters = sum(p.numel() for p in workload.model().parameters())
        counted = {name: int(meter[f"{name}_bytes"]) for name in ("dense", "payload", "link")}
        counted["dense"] *= plan.accumulate  # what would be sent if each batch's gradients were exchanged
        counted["payload"] *= not plan.alone
        kinds = self.layers.kinds(said, self.task.steps)
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
                | noted
                for noted in self.evaluations
                for step in [int(noted["step"])]
            ],
            kinds=kinds,
            layers=self.layers.told(),
            links=links,
            factored=self.phases.told(parameters),
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
        """The evaluation that counts: the best by validation, if there is a validation part, or else the last.

        What is known at the end only (of the worst replica) is told beside it.
        """
        workload, last = self.task.workload, self.evaluations[-1]
        name = validation_name(workload.metric)
        if name not in last:
            return last
        known = [noted for noted in self.evaluations if math.isfinite(noted[name])] or [last]
        best = (max if workload.better == "higher" else min)(known, key=lambda noted: noted[name])
        return {name: value for name, value in last.items() if name.startswith(WORST)} | best

    def _history(self, losses: Tensor, seconds: list[float]) -> list[dict[str, float]]:
        stretch = -(-len(losses) // MOST_POINTS)
        ends = [*range(stretch, len(losses), stretch), len(losses)]
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
