"""How much a method would say about a model: measured by saying it, on the simulated transport."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

import thinwire
from thinwire.lab.tasks import models

DISTINCT = 4  # ranks with gradients of their own; further ranks repeat them, as sizes hardly depend on the values
BUCKET_BYTES = 100 * 2**20  # of gradients that are exchanged together, over all ranks: they share this memory
STEPS = 2  # to measure over: a method may say something else in every second step
LINKS = {"10 Mbit/s": 10e6, "100 Mbit/s": 100e6, "1 Gbit/s": 1e9, "10 Gbit/s": 10e9}  # bits a second


@dataclass(frozen=True)
class Size:
    """Bytes per step: the gradients in fp32, and what the rank whose link carries the most says and carries."""

    tensors: int
    elements: int
    dense: int
    payload: float
    link: float
    worker: float | None = None  # of ranks that do not serve, where one does: what their busiest link carries

    @property
    def ratio(self) -> float:
        return self.dense / self.payload if self.payload else 1.0

    def seconds(self) -> dict[str, float]:
        """How long the exchange takes at least, by link."""
        return {link: self.link * 8 / bits for link, bits in LINKS.items()}


def total(kinds: dict[str, Size]) -> Size:
    sizes = kinds.values()
    served = any(size.worker is not None for size in sizes)
    return Size(
        sum(size.tensors for size in sizes),
        sum(size.elements for size in sizes),
        sum(size.dense for size in sizes),
        sum(size.payload for size in sizes),
        sum(size.link for size in sizes),
        sum(size.link if size.worker is None else size.worker for size in sizes) if served else None,
    )


def gradients_of(replica: thinwire.Replica) -> dict[str, Tensor]:
    """A copy of the gradients that a backward pass has left; zeros where it left none."""
    return {
        name: torch.zeros_like(p) if p.grad is None else p.grad.detach().clone()
        for name, p in replica.parameters.items()
    }


def is_led(unit: thinwire.Unit) -> bool:
    """Whether ranks take turns in telling the others what it is about."""
    return any(isinstance(part, thinwire.LeaderTopK) for part in thinwire.parts_of(unit.reducer))


class Sizer:
    """Measures methods on the gradients of one model."""

    def __init__(self, replica: thinwire.Replica, gradients: list[dict[str, Tensor]], ranks: int, steps: int) -> None:
        if ranks < 1 or steps < 1:
            raise ValueError(f"sizes are measured on 1 rank or more and 1 step or more, not {ranks} and {steps}")
        self.replica, self.gradients = replica, gradients  # by rank; where there are fewer, they are repeated
        self.ranks, self.steps = ranks, steps

    @classmethod
    def of_model(cls, name: str, ranks: int, steps: int) -> "Sizer":
        """For a model known by name, with gradients from random data."""
        described = models.named(name)
        torch.manual_seed(0)
        module = described.build()
        replica = thinwire.replica_of(module, size=ranks)
        gradients = []
        for seed in range(min(ranks, DISTINCT)):
            module.zero_grad()
            described.loss(module, seed).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            gradients.append(gradients_of(replica))
        return cls(replica, gradients, ranks, steps)

    def measure(self, method: str | thinwire.Codec | thinwire.Reducer | thinwire.Strategy) -> dict[str, Size]:
        """What a method says in a step after its warm-up, by kind of layer."""
        strategy = thinwire.settled(thinwire.strategy_of(method))
        if isinstance(strategy, thinwire.ABTraining):
            raise ValueError(
                f"{strategy!r} has no size per step: that depends on the ranks that layers turn out to have"
            )
        if isinstance(strategy, thinwire.Independent):
            return self._of_independent(strategy)
        if not isinstance(strategy, thinwire.DataParallel):
            raise ValueError(f"{strategy!r} does not exchange anything in every step, so it has no size per step")
        kinds: dict[str, list[thinwire.Unit]] = defaultdict(list)
        for unit in strategy.units(self.replica):
            kinds[unit.kind(self.replica)].append(unit)
        return {kind: self._measure(strategy, units) for kind, units in kinds.items()}

    def _of_independent(self, strategy: thinwire.Independent) -> dict[str, Size]:
        """After all has been said once: replicas are alike at first, and may have nothing to say."""
        replicas = [self._replica(rank) for rank in range(self.ranks)]
        between = thinwire.Rehearsal(strategy, replicas)
        steps = strategy.period * -(-self.steps // strategy.period)
        for _ in range(strategy.period):
            self._step(between)
        between.land()
        before = [meter.link_bytes for meter in between.meters]
        said = [dict(meter.payload_by_unit) for meter in between.meters]
        for _ in range(steps):
            self._step(between)
        between.land()
        rank, meter = max(enumerate(between.meters), key=lambda counted: counted[1].link_bytes)
        payload = {key: nbytes - said[rank].get(key, 0) for key, nbytes in meter.payload_by_unit.items()}
        all_said = max(1, sum(payload.values()))
        carried = [now.link_bytes - then for now, then in zip(between.meters, before, strict=True)]
        link = carried[rank] / all_said  # a byte that is said may go to several
        serving = thinwire.servers(strategy)
        others = [nbytes / all_said for r, nbytes in enumerate(carried) if r not in serving]
        worker = max(others) if serving and others else None
        kinds: dict[str, list[thinwire.Unit]] = defaultdict(list)
        for unit in strategy.units(self.replica):
            kinds[unit.kind(self.replica)].append(unit)
        sizes = {}
        for kind, units in kinds.items():
            names = [name for unit in units for name in unit.names]
            elements = sum(self.replica.parameters[name].numel() for name in names)
            nbytes = sum(payload.get(unit.key, 0) for unit in units)
            said_of, at_a_worker = nbytes / steps, None if worker is None else worker * nbytes / steps
            sizes[kind] = Size(len(names), elements, 4 * elements, said_of, link * said_of, at_a_worker)
        return sizes

    def _replica(self, rank: int) -> thinwire.Replica:
        parameters = {name: p.detach().clone() for name, p in self.replica.parameters.items()}
        return self.replica._replace(parameters=parameters, rank=rank, size=self.ranks)

    def _step(self, between: thinwire.Rehearsal) -> None:
        """Every replica goes its own way."""
        between.before_update([0.0] * self.ranks, rate=1.0)
        for rank, replica in enumerate(between.replicas):
            for name, p in replica.parameters.items():
                p.sub_(self.gradients[rank % len(self.gradients)][name], alpha=0.1)
        between.after_update()

    def _measure(self, strategy: thinwire.DataParallel, units: list[thinwire.Unit]) -> Size:
        sender, steps = thinwire.Simulated(self.ranks), self.steps
        if any(map(is_led, units)):
            steps = self.ranks * -(-steps // self.ranks)  # each leads as often, and says more then
        for bucket in self._buckets(units):
            states = [strategy.init(self.replica, bucket) for _ in range(self.ranks)]
            for _ in range(steps):
                talks = [
                    strategy.exchange(bucket, self._copy(bucket, r), self.ranks, states[r]) for r in range(self.ranks)
                ]
                states = [outcome.state for outcome in sender.run(talks)]
        meter = max(sender.meters, key=lambda counted: counted.link_bytes)
        names = [name for unit in units for name in unit.names]
        elements = sum(self.replica.parameters[name].numel() for name in names)
        serving = thinwire.servers(strategy)
        workers = [counted.link_bytes / steps for r, counted in enumerate(sender.meters) if r not in serving]
        payload, link = meter.payload_bytes / steps, meter.link_bytes / steps
        return Size(len(names), elements, 4 * elements, payload, link, max(workers) if serving and workers else None)

    def _buckets(self, units: list[thinwire.Unit]) -> Iterator[list[thinwire.Unit]]:
        bucket: list[thinwire.Unit] = []
        nbytes = 0
        for unit in units:
            size = sum(self.replica.parameters[name].nbytes for name in unit.names)
            if bucket and nbytes + size > BUCKET_BYTES / self.ranks:
                yield bucket
                bucket, nbytes = [], 0
            bucket.append(unit)
            nbytes += size
        if bucket:
            yield bucket

    def _copy(self, bucket: list[thinwire.Unit], rank: int) -> dict[str, Tensor]:
        gradients = self.gradients[rank % len(self.gradients)]
        return {name: gradients[name].clone() for unit in bucket for name in unit.names}
