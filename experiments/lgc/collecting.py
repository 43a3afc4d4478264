"""Record the values that replicas would send at a leader's indices, from a training in one process."""

from collections.abc import Generator, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import thinwire
from thinwire import simulate
from thinwire.codecs import Identity
from thinwire.core import ALL_GATHER, Conversation, Message, Reply
from thinwire.core.described import parts_of
from thinwire.lab.tasks.workload import Split, Workload
from thinwire.lab.tasks.workloads.camvid_pspnet import CamvidPSPNet
from thinwire.lab.tasks.workloads.cifar10_resnet18 import Cifar10ResNet18
from thinwire.lab.tasks.workloads.cifar10_resnet20 import Cifar10ResNet20
from thinwire.reducers import DGC, LGC, LeaderTopK, WarmUp
from thinwire.reducers.learned import LearnedState

WORKLOADS: dict[str, type[Workload]] = {
    "cifar10-resnet20": Cifar10ResNet20,
    "cifar10-resnet18": Cifar10ResNet18,
    "camvid-pspnet": CamvidPSPNet,
}


class Plan(NamedTuple):
    """The training to record."""

    workload: str
    ranks: int
    steps: int
    batch: int  # of a rank
    dense: int  # steps at the start that average gradients without compression
    ratio: float
    seed: int


@dataclass(frozen=True, repr=False)
class Each(LGC):
    """Every rank receives the values of all and takes the mean, as while LGC learns, but without learning."""

    learning_steps: int = 10**9

    def send_in_full(
        self, x: Tensor, state: LearnedState
    ) -> Generator[Message, Reply[Any], tuple[Tensor, LearnedState]]:
        received = yield Message(x, Identity(), state.seed, route=ALL_GATHER)
        return received.reduced.mean(0), state._replace(step=state.step + 1)


@dataclass(frozen=True, repr=False)
class Recording(LeaderTopK):
    """LeaderTopK that records the positions, the scales and the values of each step."""

    notes: dict[int, dict[str, Tensor]] = field(default_factory=dict, compare=False)

    def reduce(self, x: Tensor, state: Any) -> Conversation:
        conversation = super().reduce(x, state)
        leader_reply = yield next(conversation)
        positions: Any = leader_reply.reduced
        values = conversation.send(leader_reply)
        received = yield values
        self.notes[state.step] = {
            "where": positions.where.int(),
            "scales": positions.scales.clone(),
            "rows": received.reduced.clone(),
        }
        try:
            conversation.send(received)
        except StopIteration as end:
            return end.value
        raise AssertionError("there is no third message")


def batches(split: Split, plan: Plan) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of all ranks in turn, sampled with the plan's seed."""
    generator = torch.Generator().manual_seed(plan.seed)
    while True:
        order = torch.randperm(len(split), generator=generator)
        for chosen in torch.split(order, plan.batch):
            if len(chosen) == plan.batch:
                yield split.batch(chosen, generator)


def gradients(task: Workload, model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[float, list[Tensor]]:
    """Loss and gradients of one rank's batch."""
    model.zero_grad()
    loss = task.loss(model, *batch)
    loss.backward()
    return float(loss.detach()), [p.grad.clone() for p in model.parameters() if p.grad is not None]


def collected(plan: Plan, folder: Path) -> dict[str, Any]:
    """Train one model on the batches of all ranks, with gradients exchanged as between replicas."""
    task = WORKLOADS[plan.workload]()
    torch.manual_seed(plan.seed)
    training, _ = task.load(folder)
    model = task.model()
    shells = [deepcopy(model) for _ in range(plan.ranks)]  # have the gradients of the exchange; they are not trained
    replicas = [simulate.replica_of(m, rank=rank, size=plan.ranks) for rank, m in enumerate(shells)]
    leader = Recording(plan.ratio, values=Each(), order="value")
    strategy = thinwire.strategy_of(WarmUp(plan.dense, DGC(by=leader)))
    averaging = strategy.gradient_averaging
    assert averaging is not None, "DGC averages gradients"
    states, cluster = [strategy.init(replica) for replica in replicas], simulate.Simulated(plan.ranks)
    units = averaging.units(replicas[0])
    optimizer = task.optimizer(model)
    schedule = task.schedule(optimizer, plan.steps)
    sampled, losses, rates = batches(training, plan), [], []
    for step in range(plan.steps):
        total = 0.0
        for shell in shells:
            loss, own = gradients(task, model, next(sampled))
            total += loss / plan.ranks
            for p, gradient in zip(shell.parameters(), own, strict=True):
                p.grad = gradient
        shared = [{name: p.grad for name, p in replica.parameters.items()} for replica in replicas]
        results = cluster.run(
            [averaging.exchange(units, g, plan.ranks, s) for g, s in zip(shared, states, strict=True)]
        )
        states = [result.state for result in results]
        for p, agreed in zip(model.parameters(), shells[0].parameters(), strict=True):
            p.grad = agreed.grad
        task.adjust(model)
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
        losses.append(total)
        if step % 10 == 9:
            print(f"step {step + 1}: loss {sum(losses[-10:]) / 10:.3f}", flush=True)
    (names,) = [u.names for u in units if any(isinstance(x, Recording) for x in parts_of(u.reducer))]
    sizes = [replicas[0].parameters[name].numel() for name in names]
    steps = [{"step": plan.dense + at, "leader": at % plan.ranks, **leader.notes[at]} for at in sorted(leader.notes)]
    return {"plan": plan._asdict(), "names": names, "sizes": sizes, "losses": losses, "rates": rates, "steps": steps}
