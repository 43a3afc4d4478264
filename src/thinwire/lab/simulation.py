"""All ranks of a run in one process: the same values as real processes give, on as few cores as there are."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

import thinwire
from thinwire.lab import machine
from thinwire.lab.capture import Capture
from thinwire.lab.learner import Learner, Task, task_of
from thinwire.lab.phases import grouped
from thinwire.lab.plan import Plan
from thinwire.lab.record import Record, links_of, told_warnings
from thinwire.lab.runs import Run
from thinwire.lab.straggler import factor_of

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
        crew = Crew(plan, task)
        replicas = [
            thinwire.prepared(strategy, learner.model, learner.optimizer, rank=r, size=plan.ranks)
            for r, learner in enumerate(crew.learners)
        ]
        between = thinwire.Rehearsal(strategy, replicas)
        agreed, serving = isinstance(strategy, thinwire.DataParallel), thinwire.servers_apart(strategy)
        first = next(r for r in range(plan.ranks) if r not in serving)  # whose residuals are told
        slower = [factor_of(plan.straggler, rank, plan.ranks) for rank in range(plan.ranks)]
        record, compute, own = Record(plan, task), 0.0, 0.0
        capture = Capture(plan, task, crew.learners[0], folder)
        with crew.pool:
            for step in range(1, task.steps + 1):
                with capture.at(step):
                    losses, forth = crew.backward()
                # As real ranks see them: DDP agrees on gradients in backward, others around the update.
                due = record.is_due(ahead=1)
                if due and not agreed:
                    record.layers.weigh(replicas[0].parameters)
                between.before_update([float(loss) for loss in losses], crew.learners[0].rate)
                if due and agreed:
                    record.layers.weigh(replicas[0].parameters)
                back = crew.update()
                between.after_update()
                compute += max(factor * (a + b) for factor, a, b in zip(slower, forth, back, strict=True))
                own = compute + _coding_seconds(between)
                record.step(torch.stack(losses).double().sum() / task.trainers, between.meters[0], own)
                record.phases.note(step, between.factored())
                said = [meter.said for rank, meter in enumerate(between.meters) if rank not in serving]
                record.codes.note(step, between.learning(), said, replicas[0].parameters)
                if record.is_due():
                    between.land()
                    record.count_again(between.meters[0])
                    record.layers.note(between.layers(first))
                    tell(step=step, **evaluated(record, crew, between))
                tell(step=step, loss=float(record.losses[-1]), payload_bytes=record.payload[-1], seconds=own)
    busiest, meter = max(enumerate(between.meters), key=lambda counted: counted[1].link_bytes)
    return record.run(
        method=thinwire.methods.notation_of(strategy),
        losses=torch.stack(record.losses),
        meter=meter.as_dict(prefix="") | {"exchange_seconds": 0.0},
        total=own,
        compute=compute,
        wire=None,
        said=meter.said,
        links=links_of(busiest, meter),
        groups=grouped(between.groups, [meter.sent for meter in between.meters]),
        carried=[meter.link_bytes for meter in between.meters],
        learned=record.codes.told(),
        warned=warned,
    )


class Crew:
    """The learners of all ranks, at work on as many cores as there are, each with the threads it would have alone."""

    def __init__(self, plan: Plan, task: Task) -> None:
        self.learners, self.draws = [], []
        for rank in range(plan.ranks):
            self.learners.append(Learner(plan, task, rank))
            self.learners[-1].adjust()
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


def evaluated(record: Record, crew: Crew, between: thinwire.Rehearsal) -> dict[str, float]:
    """Judge what the ranks have agreed on: where they differ, their mean, and at the end each of them as well."""
    first = crew.learners[0]
    alike = isinstance(between.strategy, thinwire.DataParallel)
    if alike and not thinwire.servers_apart(between.strategy):
        return record.note(record.judge(first), None)
    buffers = [dict(learner.model.named_buffers()) for learner in crew.learners]
    found = between.consensus(buffers)
    if alike:  # but for the statistics of who only serves
        return record.note(record.judge(first, _with(first.model, found.means)), None)
    metric = first.workload.metric
    each = [record.judge(learner)[metric] for learner in crew.learners] if record.is_last else []
    leader, centre, others = between.leader(), between.centre(), {}
    if leader is not None:
        others["leader"] = record.judge(crew.learners[leader])[metric]
    if centre is not None:
        others["centre"] = record.judge(first, _with(first.model, centre))[metric]
    return record.note(record.judge(first, _with(first.model, found.means)), found.distance, each, others)


def _with(model: nn.Module, means: dict[str, Tensor]) -> nn.Module:
    """A copy of a model with other parameters and buffers."""
    copy = thinwire.merged(model)
    copy.load_state_dict(means, strict=False)
    return copy


def _coding_seconds(between: thinwire.Rehearsal) -> float:
    """What the rank that took longest spent on encoding and decoding."""
    return max(meter.encode_seconds + meter.decode_seconds for meter in between.meters)


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
