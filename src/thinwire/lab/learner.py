"""One rank's share of a task: its model, its examples and its optimizer, whatever is between the ranks."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

import thinwire
from thinwire.lab import datasets, workloads
from thinwire.lab.links.link import CENTRE, Link
from thinwire.lab.plan import Plan, PlanError
from thinwire.lab.sharding import batches, shards
from thinwire.lab.sizes import STEPS, Sizer, gradients_of
from thinwire.lab.workload import Split, Workload


@dataclass(frozen=True)
class Task:
    """A plan's workload with its data loaded."""

    workload: Workload
    training: Split
    test: Split
    shares: list[Tensor]  # the training examples of each rank, of those that the budget allows
    test_examples: int
    batch: int  # examples a step and rank that trains
    trainers: int  # ranks that do; the others only serve
    steps: int


def task_of(plan: Plan) -> Task:
    """Load what a plan needs; all that can be wrong with it is found here."""
    workload = workloads.named(plan.workload)
    training, test = workload.load(datasets.folder(Path(plan.data) if plan.data else None))
    if plan.budget not in workload.budgets:
        raise PlanError(f"{plan.workload} has no budget {plan.budget!r}, only {', '.join(workload.budgets)}")
    budget = workload.budgets[plan.budget]
    count = min(budget.training or len(training), len(training))
    order = torch.randperm(len(training), generator=torch.Generator().manual_seed(plan.seed))
    serving = thinwire.servers_apart(thinwire.strategy_of(plan.method))
    trainers = plan.ranks - len(serving)
    batch = (plan.batch or workload.batch) // trainers
    if batch == 0:
        raise PlanError(f"a batch of {plan.batch or workload.batch} cannot be divided among {trainers} ranks")
    examples = order[:count].sort().values
    labels = None if training.labels is None else training.labels[examples]
    epochs = plan.epochs or budget.epochs
    steps = plan.steps or max(1, round(epochs * count / (batch * trainers)))
    shares = [examples[share] for share in shards(labels, count, trainers, plan.shards, plan.seed)]
    for rank in sorted(serving):
        shares.insert(rank, examples[:0])
    return Task(
        workload=workload,
        training=training,
        test=test,
        shares=shares,
        test_examples=min(budget.test or len(test), len(test)),
        batch=batch,
        trainers=trainers,
        steps=steps,
    )


def check_server(plan: Plan) -> None:
    """Raise PlanError if a plan does not go with where its method has a server."""
    strategy = thinwire.strategy_of(plan.method)
    if plan.capture and 0 in thinwire.servers_apart(strategy):
        raise PlanError("rank 0 only serves, so it has no gradients to capture: let another rank serve, with at=1")
    if plan.link is not None and Link.parse(plan.link).star:
        if plan.ranks == 1:
            raise PlanError(f"{plan.link} has rank {CENTRE} in the middle, and there is no other")
        elsewhere = thinwire.servers(strategy) - {CENTRE}
        if elsewhere:
            raise PlanError(
                f"in the middle of {plan.link} is rank {CENTRE}, and {plan.method} serves at {max(elsewhere)}"
            )


class Learner:
    """Makes gradients from its own examples, and steps when they have been exchanged."""

    def __init__(self, plan: Plan, task: Task, rank: int) -> None:
        self.task, self.workload, self.rank = task, task.workload, rank
        torch.manual_seed(plan.seed)
        self.model = self.workload.model()
        self.optimizer = self.workload.optimizer(self.model)
        self.schedule = self.workload.schedule(self.optimizer, task.steps)
        order, self.augmentation = (_generator(plan.seed, rank, purpose) for purpose in (0, 1))
        self.serves = not len(task.shares[rank])  # and trains nothing
        self.batches = iter(()) if self.serves else batches(task.shares[rank], task.batch, order)
        torch.manual_seed(_stream(plan.seed, rank, 2))  # what the model draws as it goes, such as dropout
        self.model.train()

    def backward(self, model: nn.Module | None = None) -> Tensor:
        """The gradients of the next batch, through the model as the ranks wrapped it; returns the loss."""
        if self.serves:
            self.optimizer.zero_grad()
            return torch.zeros(())
        inputs, targets = self.task.training.batch(next(self.batches), self.augmentation)
        loss = self.workload.loss(self.model if model is None else model, inputs, targets)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return loss.detach()

    def warm_up(self, method: str) -> bool:
        """Meet the costs of the first steps before any clock runs, and warnings; changes nothing.

        Returns whether a step of the model draws random numbers.
        Layers choose their algorithms, and methods load or compile their loops, some of them in the second step only.
        """
        thinwire.check_momentum(method, self.optimizer)
        draws = torch.get_rng_state()
        copy = deepcopy(self.model)
        share = next(share for share in self.task.shares if len(share))
        inputs, targets = self.task.training.batch(share[: self.task.batch], None)
        self.workload.loss(copy, inputs, targets).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        drew = not torch.equal(torch.get_rng_state(), draws)
        replica = thinwire.replica_of(copy)
        strategy, ranks = thinwire.strategy_of(method), 1
        if isinstance(strategy, thinwire.ABTraining):
            strategy = thinwire.DataParallel(strategy.reducer)
        if isinstance(strategy, thinwire.Neighbours):  # which need one to speak to; a graph may be of more ranks only
            strategy, ranks = replace(strategy, topology=thinwire.Complete()), 2  # type: ignore[type-var]  # a dataclass
        if isinstance(strategy, thinwire.Nested | thinwire.Leader):
            strategy = replace(strategy, groups=thinwire.Together())
        ranks = max(ranks, 1 + max(thinwire.servers(strategy), default=0))
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
        """Of learning, in the next update."""
        return float(self.optimizer.param_groups[0]["lr"])

    def update(self) -> None:
        self.optimizer.step()
        self.schedule.step()

    def evaluate(self, model: nn.Module | None = None) -> dict[str, float]:
        """Judge this rank's model, or another one of its kind."""
        judged = self.model if model is None else model
        judged.eval()
        try:
            return self.workload.evaluate(judged, self.task.test, self.task.test_examples)
        finally:
            judged.train()


def _stream(seed: int, rank: int, purpose: int) -> int:
    # torch's generators on the CPU use 32 bits of a seed.
    return seed * 2**17 + rank * 8 + purpose


def _generator(seed: int, rank: int, purpose: int) -> torch.Generator:
    return torch.Generator().manual_seed(_stream(seed, rank, purpose))
