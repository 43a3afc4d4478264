"""One rank's share of a task: its model, its examples and its optimizer, whatever is between the ranks."""

from collections.abc import Callable
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

import thinwire
from thinwire import inspect, simulate
from thinwire.lab.recording.runs import validation_name
from thinwire.lab.runner.data_sharding import Batches, shards
from thinwire.lab.runner.plan import Plan, PlanError
from thinwire.lab.runner.plan_checks import batch_per_rank, check_budget
from thinwire.lab.sizing.sizes import STEPS, Sizer, gradients_of
from thinwire.lab.tasks import datasets, workloads
from thinwire.lab.tasks.workload import Split, Workload


@dataclass(frozen=True)
class Task:
    """A plan's workload with its data loaded."""

    workload: Workload
    training: Split
    validation: Split | None  # by which the best model is chosen, if some of the training part is held back
    test: Split
    shares: list[Tensor]  # the training examples of each rank, of those that the budget allows
    test_examples: int
    batch: int  # examples a step and rank that trains
    trainers: int  # ranks that do; the others only serve
    steps: int
    evaluations: int
    warmup: float  # share of the steps


def task_of(plan: Plan) -> Task:
    """Load what a plan needs; all that can be wrong with it is found here."""
    workload, folder = workloads.named(plan.workload), datasets.folder(Path(plan.data) if plan.data else None)
    check_budget(plan, workload)
    budget = workload.budgets[plan.budget]
    training, test = workload.load(folder)
    validation: Split | None = None
    if budget.validation:
        if budget.validation >= len(training):
            raise PlanError(
                f"{plan.workload} holds back {budget.validation} examples for validation, of {len(training)} in all"
            )
        training, validation = workload.hold_back(training, budget.validation, folder)
    count = min(budget.training or len(training), len(training))
    order = torch.randperm(len(training), generator=torch.Generator().manual_seed(plan.seed))
    serving = inspect.dedicated_servers(thinwire.strategy_of(plan.method))
    batch = batch_per_rank(plan, workload, plan.ranks - len(serving))
    trainers = plan.size - len(serving)
    examples = order[:count].sort().values
    labels = None if training.labels is None else training.labels[examples]
    # A rank that trains alone makes as many steps as all of them would together.
    per_step = batch * (plan.ranks - len(serving)) * plan.accumulate
    steps = (plan.epochs or budget.epochs) * count / per_step if plan.steps is None else plan.steps / plan.accumulate
    steps = max(1, round(steps))
    shares = [examples[share] for share in shards(labels, count, trainers, plan.shards, plan.seed)]
    for rank in sorted(serving):
        shares.insert(rank, examples[:0])
    return Task(
        workload=workload,
        training=training,
        validation=validation,
        test=test,
        shares=shares,
        test_examples=min(budget.test or len(test), len(test)),
        batch=batch,
        trainers=trainers,
        steps=steps,
        evaluations=min(plan.evaluations or budget.evaluations, steps),
        warmup=budget.warmup if plan.warmup is None else plan.warmup,
    )


class Learner:
    """Makes gradients from its own examples, and steps when they have been exchanged."""

    def __init__(self, plan: Plan, task: Task, rank: int) -> None:
        self.task, self.workload, self.rank = task, task.workload, rank
        torch.manual_seed(plan.seed)
        self.model = self.workload.model()
        self.optimizer = self.workload.optimizer(self.model)
        self.schedule = self.workload.schedule(self.optimizer, task.steps)
        self.plan, self.updates = plan, 0
        if plan.lr_scale != 1 or task.warmup:
            self._scale_rate()
        order, self.augmentation = (_generator(plan.seed, rank, purpose) for purpose in (0, 1))
        self.serves = not len(task.shares[rank])  # and trains nothing
        self.batches = None if self.serves else Batches(task.shares[rank], task.batch, order)
        torch.manual_seed(_stream(plan.seed, rank, 2))  # what the model draws as it goes, such as dropout
        self.model.train()

    def backward(self, model: nn.Module | None = None) -> Tensor:
        """The gradients of the next batch, or of several that are accumulated, through the model as the ranks wrapped
        it; returns the loss.
        """
        self.optimizer.zero_grad()
        total = torch.zeros(())
        if self.batches is None:
            return total
        wrapped, count = self.model if model is None else model, self.plan.accumulate
        for part in range(count):
            inputs, targets = self.task.training.batch(next(self.batches), self.augmentation)
            # DDP exchanges in every backward, unless it is told not to.
            apart = part < count - 1 and isinstance(wrapped, DistributedDataParallel)
            with wrapped.no_sync() if apart else nullcontext():  # type: ignore[operator]  # DDP has it
                loss = self.workload.loss(wrapped, inputs, targets)
                (loss if count == 1 else loss / count).backward()  # type: ignore[no-untyped-call]
            total = loss.detach() if count == 1 else total + loss.detach() / count
        return total

    def warm_up(self, method: str) -> bool:
        """Meet the costs of the first steps before any clock runs, and warnings; changes nothing.

        Returns whether a step of the model draws random numbers.
        Layers choose their algorithms, and methods load or compile their loops, some of them in the second step only.
        """
        inspect.check_momentum(method, self.optimizer)
        draws = torch.get_rng_state()
        copy = deepcopy(self.model)
        share = next(share for share in self.task.shares if len(share))
        inputs, targets = self.task.training.batch(share[: self.task.batch], None)
        self.workload.loss(copy, inputs, targets).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        drew = not torch.equal(torch.get_rng_state(), draws)
        replica = simulate.replica_of(copy)
        strategy, ranks = thinwire.strategy_of(method).dry_run()
        ranks = max(ranks, 1 + max(inspect.servers(strategy), default=0))
        Sizer(replica, [gradients_of(replica)], ranks, STEPS).measure(strategy)
        torch.set_rng_state(draws)
        return drew

    def adjust(self, before: Callable[[], None] | None = None) -> None:
        """Let the workload adjust gradients within each step from now on: after the hooks of a method that is there.

        And call something just before, when gradients are agreed on.
        """
        if before is not None:
            self.optimizer.register_step_pre_hook(lambda *_: before())
        self.optimizer.register_step_pre_hook(lambda *_: self.workload.adjust(self.model))

    @property
    def rate(self) -> float:
        """The learning rate of the next update."""
        return float(self.optimizer.param_groups[0]["lr"]) * self._rate_scale()

    def _rate_scale(self) -> float:
        rise = self.task.warmup * self.task.steps
        return self.plan.lr_scale * min(1.0, (self.updates + 1) / (rise + 1))

    def _scale_rate(self) -> None:
        """Scale the learning rate in each update, whatever schedule sets it. The schedule sees its own rate only."""
        own: list[float] = []

        def before(optimizer: Optimizer, *_: object) -> None:
            own[:] = [group["lr"] for group in optimizer.param_groups]
            for group, rate in zip(optimizer.param_groups, own, strict=True):
                group["lr"] = rate * self._rate_scale()

        def after(optimizer: Optimizer, *_: object) -> None:
            for group, rate in zip(optimizer.param_groups, own, strict=True):
                group["lr"] = rate

        # Before the hooks of any method: these look at the learning rate.
        self.optimizer.register_step_pre_hook(before)
        self.optimizer.register_step_post_hook(after)

    def update(self) -> None:
        self.optimizer.step()
        self.schedule.step()
        self.updates += 1

    def evaluate(self, model: nn.Module | None = None, validate: bool = False) -> dict[str, float]:
        """The metrics of this rank's model, or another one of its kind; on the validation part as well, if asked."""
        judged, task = self.model if model is None else model, self.task
        judged.eval()
        try:
            metrics = self.workload.evaluate(judged, task.test, task.test_examples)
            if validate and task.validation is not None:
                held = self.workload.evaluate(judged, task.validation, len(task.validation))
                metrics |= {validation_name(name): value for name, value in held.items()}
            return metrics
        finally:
            judged.train()

    def state_dict(self) -> dict[str, Any]:
        """Where it is in its examples; model, optimizer and schedule have states of their own."""
        return {
            "updates": self.updates,
            "batches": None if self.batches is None else self.batches.state_dict(),
            "augmentation": self.augmentation.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.updates = state["updates"]
        if self.batches is not None:
            self.batches.load_state_dict(state["batches"])
        self.augmentation.set_state(state["augmentation"])


def _stream(seed: int, rank: int, purpose: int) -> int:
    # torch's generators on the CPU use 32 bits of a seed.
    return seed * 2**17 + rank * 8 + purpose


def _generator(seed: int, rank: int, purpose: int) -> torch.Generator:
    return torch.Generator().manual_seed(_stream(seed, rank, purpose))
