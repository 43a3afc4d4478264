"""All ranks of a run in one process: the same values as real processes give, on as few cores as there are."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

import thinwire
from thinwire.lab import machine
from thinwire.lab.capture import Capture
from thinwire.lab.learner import Learner, Task, task_of
from thinwire.lab.plan import Plan
from thinwire.lab.record import Record, told_warnings
from thinwire.lab.runs import Run

Result = TypeVar("Result")


def run(plans: list[Plan], hear: Callable[[dict[str, Any]], None], folders: list[Path] | None = None) -> None:
    """Run plans one after the other; `hear` gets what happens, as from real ranks; captured gradients go to folders."""

    def tell(**event: Any) -> None:
        hear(event)

    for number, plan in enumerate(plans):
        tell(begins=number)
        task = task_of(plan)
        tell(steps=task.steps, metric=task.workload.metric)
        try:
            made = train(plan, task, tell, folders[number] if folders else None)
        except (thinwire.NonFiniteError, ValueError) as error:
            tell(failed=str(error))
        else:
            tell(done=asdict(made))


def train(plan: Plan, task: Task, tell: Callable[..., None], folder: Path | None = None) -> Run:
    """Train all ranks, step by step.

    Its seconds are those of one rank: what it computes, encodes and decodes, as if it had a core of its own.
    """
    with _threads(plan.threads), told_warnings() as warned:
        strategy = thinwire.strategy_of(plan.method)
        if not isinstance(strategy, thinwire.DataParallel):
            raise ValueError(f"{strategy!r} cannot be simulated here: it does not exchange gradients in every step")
        crew = Crew(plan, task)
        exchange = Exchange(strategy, crew.learners)
        record, compute, own = Record(plan, task), 0.0, 0.0
        capture = Capture(plan, task, crew.learners[0], folder)
        with crew.pool:
            for step in range(1, task.steps + 1):
                with capture.at(step):
                    losses, forth = crew.backward()
                exchange.run()
                if record.is_due(ahead=1):
                    record.layers.weigh(exchange.replicas[0].parameters)
                back = crew.update()
                compute += max(a + b for a, b in zip(forth, back, strict=True))
                own = compute + exchange.coding_seconds()
                record.step(torch.stack(losses).mean(), exchange.sender.meters[0], own)
                if record.is_due():
                    record.layers.note(exchange.layers())
                    tell(step=step, **record.evaluate(crew.learners[0]))
                tell(step=step, loss=float(record.losses[-1]), payload_bytes=record.payload[-1], seconds=own)
    meter = max(exchange.sender.meters, key=lambda counted: counted.link_bytes)
    return record.run(
        method=thinwire.methods.notation_of(strategy),
        losses=torch.stack(record.losses),
        meter=meter.as_dict(prefix="") | {"exchange_seconds": 0.0},
        total=own,
        compute=compute,
        wire=None,
        said=meter.said,
        warned=warned,
    )


class Crew:
    """The learners of all ranks, at work on as many cores as there are, each with the threads it would have alone."""

    def __init__(self, plan: Plan, task: Task) -> None:
        self.learners, self.draws = [], []
        for rank in range(plan.ranks):
            self.learners.append(Learner(plan, task, rank))
            self.draws.append(torch.get_rng_state())
        self.learners[0].warm_up(plan.method)
        at_once = max(1, machine.cores() // plan.threads)
        self.pool = ThreadPoolExecutor(at_once, initializer=torch.set_num_threads, initargs=(plan.threads,))
        self.draws_nothing = False  # known after the first step

    def backward(self) -> tuple[list[Tensor], list[float]]:
        """All ranks' gradients; returns their losses and the seconds that each took."""
        if self.draws_nothing:
            before = torch.get_rng_state()
            results = self._together(Learner.backward)
            if not torch.equal(torch.get_rng_state(), before):
                raise ValueError(
                    "this model draws random numbers in some steps and not in others, which ranks in one process "
                    "cannot keep apart: use --transport processes"
                )
            return results
        # Models that draw (dropout) draw from the process's one generator: each rank gets its own turn, and its state.
        in_turn, untouched = [], True
        for rank, learner in enumerate(self.learners):
            torch.set_rng_state(self.draws[rank])
            in_turn.append(_timed(Learner.backward, learner))
            after = torch.get_rng_state()
            untouched &= bool(torch.equal(after, self.draws[rank]))
            self.draws[rank] = after
        self.draws_nothing = untouched
        losses, seconds = zip(*in_turn, strict=True)
        return list(losses), list(seconds)

    def update(self) -> list[float]:
        return self._together(Learner.update)[1]

    def _together(self, act: Callable[[Learner], Result]) -> tuple[list[Result], list[float]]:
        results = list(self.pool.map(lambda learner: _timed(act, learner), self.learners))
        return [result for result, _ in results], [seconds for _, seconds in results]


class Exchange:
    """What is said between the simulated ranks about each step's gradients."""

    def __init__(self, strategy: thinwire.DataParallel, learners: list[Learner]) -> None:
        self.strategy, ranks = strategy, len(learners)
        self.sender = thinwire.Simulated(ranks)
        self.replicas = [
            thinwire.replica_of(learner.model, rank=rank, size=ranks) for rank, learner in enumerate(learners)
        ]
        self.units = strategy.units(self.replicas[0])
        self.states: list[Any] = [strategy.init(replica) for replica in self.replicas]

    @torch.no_grad()
    def run(self) -> None:
        gradients = [
            {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in replica.parameters.items()}
            for replica in self.replicas
        ]
        size = self.sender.size
        talks = [self.strategy.exchange(self.units, gradients[r], size, self.states[r]) for r in range(size)]
        outcomes = self.sender.run(talks)
        if outcomes[0].lost:
            names = ", ".join(outcomes[0].lost[0].names[:3])
            raise thinwire.NonFiniteError(f"NaN or infinity in the gradient of {names}: the run has diverged")
        self.states = [outcome.state for outcome in outcomes]
        for meter, said in zip(self.sender.meters, gradients, strict=True):
            meter.steps += 1
            meter.count_dense(sum(gradient.nbytes for gradient in said.values()), size)
        for replica, said in zip(self.replicas, gradients, strict=True):
            for name, parameter in replica.parameters.items():
                parameter.grad = said[name]

    def layers(self) -> dict[str, thinwire.Layer]:
        """What rank 0 has said of each layer, and how much it has not."""
        meter = self.sender.meters[0]
        return self.strategy.layers(self.replicas[0], self.states[0], meter.dense_bytes, meter.said)

    def coding_seconds(self) -> float:
        """What the rank that took longest spent on encoding and decoding."""
        return max(meter.encode_seconds + meter.decode_seconds for meter in self.sender.meters)


def _timed(act: Callable[[Learner], Result], learner: Learner) -> tuple[Result, float]:
    start = time.thread_time()
    return act(learner), time.thread_time() - start


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
