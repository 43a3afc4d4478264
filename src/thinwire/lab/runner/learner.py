"""One rank's share of a task: its model, its examples and its optimizer, independent of the transport."""

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
    validation: Split | None  # selects the best model, if the budget has validation examples
    test: Split
    shares: list[Tensor]  # the training examples of each rank, within the budget
    test_examples: int
    batch: int  # examples per step and training rank
    trainers: int  # ranks that train; the others are dedicated servers
    steps: int
    evaluations: int
    warmup: float  # fraction of the steps


def task_of(plan: Plan) -> Task:
    """Load the data of a plan; raises ValueError if the plan does not fit it."""
    workload, folder = workloads.named(plan.workload), datasets.folder(Path(plan.data) if plan.data else None)
    check_budget(plan, workload)
    budget = workload.budgets[plan.budget]
    training, test = workload.load(folder)
    validation: Split | None = None
    if budget.validation:
        if budget.validation >= len(training):
            raise PlanError(
                f"{plan.workload} reserves {budget.validation} examples for validation, but has only {len(training)}"
            )
        training, validation = workload.hold_back(training, budget.validation, folder)
    count = min(budget.training or len(training), len(training))
    order = torch.randperm(len(training), generator=torch.Generator().manual_seed(plan.seed))
    serving = inspect.dedicated_servers(thinwire.strategy_of(plan.method))
    batch = batch_per_rank(plan, workload, plan.ranks - len(serving))
    trainers = plan.size - len(serving)
    examples = order[:count].sort().values
    labels = None if training.labels is None else training.labels[examples]
    # A rank that trains alone makes as many steps as all ranks would together.
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
    """Computes gradients from its own examples, and updates its model once they are exchanged."""

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
        self.serves = not len(task.shares[rank])  # a dedicated server, which does not train
        self.batches = None if self.serves else Batches(task.shares[rank], task.batch, order)
        torch.manual_seed(_stream(plan.seed, rank, 2))  # for random numbers in the model, such as dropout
        self.model.train()

    def backward(self, model: nn.Module | None = None) -> Tensor:
        """Compute the gradients of the next batch (or of several accumulated ones) and return the loss.

        `model` is the learner's model as the method wrapped it; by default, the model itself.
        """
        self.optimizer.zero_grad()
        total = torch.zeros(())
        if self.batches is None:
            return total
        wrapped, count = self.model if model is None else model, self.plan.accumulate
        for part in range(count):
            inputs, targets = self.task.training.batch(next(self.batches), self.augmentation)
            # DDP exchanges gradients in every backward, except within no_sync().
            no_exchange = part < count - 1 and isinstance(wrapped, DistributedDataParallel)
            with wrapped.no_sync() if no_exchange else nullcontext():  # type: ignore[operator]  # DDP has it
                loss = self.workload.loss(wrapped, inputs, targets)
                (loss if count == 1 else loss / count).backward()  # type: ignore[no-untyped-call]
            total = loss.detach() if count == 1 else total + loss.detach() / count
        return total

    def warm_up(self, method: str) -> bool:
        """Pay the one-time costs of the first steps before any clock runs, and raise early warnings; changes no state.

        Layers choose their algorithms, and methods load or compile their kernels, some only in the second step.
        Returns whether a step of the model consumes random numbers.
        """
        inspect.check_momentum(method, self.optimizer)
        rng_state = torch.get_rng_state()
        copy = deepcopy(self.model)
        share = next(share for share in self.task.shares if len(share))
        inputs, targets = self.task.training.batch(share[: self.task.batch], None)
        self.workload.loss(copy, inputs, targets).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        consumed = not torch.equal(torch.get_rng_state(), rng_state)
        replica = simulate.replica_of(copy)
        strategy, ranks = thinwire.strategy_of(method).dry_run()
        ranks = max(ranks, 1 + max(inspect.servers(strategy), default=0))
        Sizer(replica, ranks, STEPS, [gradients_of(replica)]).measure(strategy)
        torch.set_rng_state(rng_state)
        return consumed

    def adjust(self, before: Callable[[], None] | None = None) -> None:
        """From now on, let the workload adjust the gradients in each step, after the hooks of an attached method.

        `before` is called just before that, when the gradients are reduced.
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
        """Scale the learning rate in each update, under any schedule. The schedule sees only its own rate."""
        scheduled: list[float] = []

        def before(optimizer: Optimizer, *_: object) -> None:
            scheduled[:] = [group["lr"] for group in optimizer.param_groups]
            for group, rate in zip(optimizer.param_groups, scheduled, strict=True):
                group["lr"] = rate * self._rate_scale()

        def after(optimizer: Optimizer, *_: object) -> None:
            for group, rate in zip(optimizer.param_groups, scheduled, strict=True):
                group["lr"] = rate

        # Registered before the hooks of any method, which read the learning rate.
        self.optimizer.register_step_pre_hook(before)
        self.optimizer.register_step_post_hook(after)

    def update(self) -> None:
        self.optimizer.step()
        self.schedule.step()
        self.updates += 1

    def evaluate(self, model: nn.Module | None = None, validate: bool = False) -> dict[str, float]:
        """The metrics of this rank's model or of another one; with `validate`, on the validation examples as well."""
        evaluated, task = self.model if model is None else model, self.task
        evaluated.eval()
        try:
            metrics = self.workload.evaluate(evaluated, task.test, task.test_examples)
            if validate and task.validation is not None:
                validated = self.workload.evaluate(evaluated, task.validation, len(task.validation))
                metrics |= {validation_name(name): value for name, value in validated.items()}
            return metrics
        finally:
            evaluated.train()

    def state_dict(self) -> dict[str, Any]:
        """The position in its examples; model, optimizer and schedule are saved separately."""
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
    # torch's CPU generators use only 32 bits of a seed.
    return seed * 2**17 + rank * 8 + purpose


def _generator(seed: int, rank: int, purpose: int) -> torch.Generator:
    return torch.Generator().manual_seed(_stream(seed, rank, purpose))
