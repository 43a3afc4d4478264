"""The bytes that a method sends for a model, measured on the simulated transport."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import thinwire
from thinwire import extend, inspect, simulate
from thinwire.lab.sizing.extrapolation import RankTraffic
from thinwire.lab.tasks import models

DISTINCT = 4  # ranks with different gradients, where sizes depend on how these differ; other ranks repeat them
SCALE = 0.01  # of sampled gradients
BUCKET_BYTES = 100 * 2**20  # of gradients that are exchanged together, over all ranks, to limit the memory
STEPS = 2  # measured: a method may send different messages in every second step
LINKS = {"10 Mbit/s": 10e6, "100 Mbit/s": 100e6, "1 Gbit/s": 1e9, "10 Gbit/s": 10e9}  # bits per second


@dataclass(frozen=True)
class Size:
    """Bytes per step: of the gradients in fp32, and payload and link bytes of the rank with the busiest link."""

    tensors: int
    elements: int
    dense: int
    payload: float
    link: float
    worker: float | None = None  # with a server: link bytes of the busiest rank that is not the server

    @property
    def ratio(self) -> float:
        return self.dense / self.payload if self.payload else 1.0

    def seconds(self) -> dict[str, float]:
        """A lower bound of the time of the exchange, by link."""
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


def gradients_of(replica: extend.Replica) -> dict[str, Tensor]:
    """A copy of the gradients that a backward pass has left; zeros where it left none."""
    return {
        name: torch.zeros_like(p) if p.grad is None else p.grad.detach().clone()
        for name, p in replica.parameters.items()
    }


def sampled_gradients(replica: extend.Replica, seed: int) -> dict[str, Tensor]:
    """Gradients from a Laplace distribution: shape 1, below the ResNets' and above the LSTM's in results/gradients."""
    generator = torch.Generator().manual_seed(seed)
    entries = sum(p.numel() for p in replica.parameters.values())
    flat = torch.empty(entries).exponential_(1 / SCALE, generator=generator)
    signs = torch.empty(entries, dtype=torch.int8).random_(0, 2, generator=generator)
    flat.mul_(signs.mul_(2).sub_(1))
    pieces = torch.split(flat, [p.numel() for p in replica.parameters.values()])
    return {n: x.view(p.shape).to(p.dtype) for (n, p), x in zip(replica.parameters.items(), pieces, strict=True)}


class Sizer:
    """Measures methods on the gradients of one model."""

    def __init__(
        self, replica: extend.Replica, ranks: int, steps: int, gradients: Sequence[dict[str, Tensor]] = ()
    ) -> None:
        if ranks < 1 or steps < 1:
            raise ValueError(f"sizes are measured on 1 rank or more and 1 step or more, not {ranks} and {steps}")
        self.replica, self.ranks, self.steps = replica, ranks, steps
        self._gradients = dict(enumerate(gradients))  # the first ones by rank; sampled where none are given
        self._distinct = len(gradients) or DISTINCT

    @classmethod
    def of_model(cls, name: str, ranks: int, steps: int) -> "Sizer":
        """For a model known by name."""
        return cls(simulate.replica_of(models.named(name).build(), size=ranks), ranks, steps)

    def gradients(self, rank: int = 0) -> dict[str, Tensor]:
        """The gradients of a rank."""
        number = rank % self._distinct
        if number not in self._gradients:
            self._gradients[number] = sampled_gradients(self.replica, seed=number)
        return self._gradients[number]

    def measure(self, method: str | extend.Codec | extend.Reducer | extend.Strategy) -> dict[str, Size]:
        """The bytes of a method per step after its warm-up, by kind of layer."""
        strategy = thinwire.strategy_of(thinwire.settled(method))
        if not strategy.measured_per_step:
            raise ValueError(f"{strategy!r} has no fixed size per step: it depends on the rank found for each layer")
        if isinstance(strategy, extend.Independent):
            return self._of_independent(strategy)
        averaging = strategy.gradient_averaging
        if averaging is None:
            raise ValueError(f"{strategy!r} does not exchange anything in every step, so it has no size per step")
        kinds: dict[str, list[extend.Unit]] = defaultdict(list)
        for unit in averaging.units(self.replica):
            kinds[unit.kind(self.replica)].append(unit)
        return {kind: self._measure(averaging, units) for kind, units in kinds.items()}

    def _of_independent(self, strategy: extend.Independent) -> dict[str, Size]:
        """Measure after a first period: replicas are identical at first, and may have nothing to send."""
        replicas = [self._replica(rank) for rank in range(self.ranks)]
        ranks = _Ranks(strategy, replicas)
        steps = strategy.period * -(-self.steps // strategy.period)
        ranks.train(strategy.period, self._update)
        before = [meter.link_bytes for meter in ranks.meters]
        payload_before = [dict(meter.payload_by_unit) for meter in ranks.meters]
        ranks.train(steps, self._update)
        rank, meter = max(enumerate(ranks.meters), key=lambda counted: counted[1].link_bytes)
        payload = {key: nbytes - payload_before[rank].get(key, 0) for key, nbytes in meter.payload_by_unit.items()}
        total_payload = max(1, sum(payload.values()))
        carried = [now.link_bytes - then for now, then in zip(ranks.meters, before, strict=True)]
        link = carried[rank] / total_payload  # link bytes per payload byte: a message may go to several ranks
        servers = inspect.servers(strategy)
        others = [nbytes / total_payload for r, nbytes in enumerate(carried) if r not in servers]
        worker = max(others) if servers and others else None
        kinds: dict[str, list[extend.Unit]] = defaultdict(list)
        for unit in strategy.units(self.replica):
            kinds[unit.kind(self.replica)].append(unit)
        sizes = {}
        for kind, units in kinds.items():
            names = [name for unit in units for name in unit.names]
            elements = sum(self.replica.parameters[name].numel() for name in names)
            nbytes = sum(payload.get(unit.key, 0) for unit in units)
            per_step = nbytes / steps
            at_worker = None if worker is None else worker * nbytes / steps
            sizes[kind] = Size(len(names), elements, 4 * elements, per_step, link * per_step, at_worker)
        return sizes

    def _replica(self, rank: int) -> extend.Replica:
        parameters = {name: p.detach().clone() for name, p in self.replica.parameters.items()}
        return self.replica._replace(parameters=parameters, rank=rank, size=self.ranks)

    def _update(self, replicas: list[extend.Replica]) -> None:
        """A local step on every replica, with gradients of its own."""
        for rank, replica in enumerate(replicas):
            for name, p in replica.parameters.items():
                p.sub_(self.gradients(rank)[name], alpha=0.1)

    def _measure(self, strategy: extend.GradientAveraging, units: list[extend.Unit]) -> Size:
        names = [name for unit in units for name in unit.names]
        elements = sum(self.replica.parameters[name].numel() for name in names)
        payload, link, worker = self._bytes(strategy, units)
        return Size(len(names), elements, 4 * elements, payload, link, worker)

    def _bytes(self, strategy: extend.GradientAveraging, units: list[extend.Unit]) -> tuple[float, float, float | None]:
        """Payload and link bytes per step, and the link bytes of a rank that does not serve if some do."""
        servers = inspect.servers(strategy)
        traffic = RankTraffic(strategy, self.replica, self.gradients(), self.ranks, self.steps, units)
        served_in_turn = servers and any(reducer.cycle(self.ranks) > 1 for reducer in _reducers(units))
        if traffic.answers_vary or served_in_turn:
            return self.simulated(strategy, units, servers)
        load = traffic.load(self.ranks)
        worker = traffic.worker_link(servers) if servers and self.ranks > len(servers) else None
        return load.payload, load.link, worker

    def simulated(
        self, strategy: extend.GradientAveraging, units: list[extend.Unit], servers: Collection[int]
    ) -> tuple[float, float, float | None]:
        """The same, with every rank simulated: for answers that depend on how the gradients of the ranks differ."""
        sender = simulate.Simulated(self.ranks)
        period = max(reducer.cycle(self.ranks) for reducer in _reducers(units))
        steps = period * -(-self.steps // period)
        for bucket in self._buckets(units):
            states = [strategy.init(self.replica, bucket) for _ in range(self.ranks)]
            for _ in range(steps):
                exchanges = [
                    strategy.exchange(bucket, self._copy(bucket, r), self.ranks, states[r]) for r in range(self.ranks)
                ]
                states = [result.state for result in sender.run(exchanges)]
        meter = max(sender.meters, key=lambda counted: counted.link_bytes)
        workers = [counted.link_bytes / steps for r, counted in enumerate(sender.meters) if r not in servers]
        worker = max(workers) if servers and workers else None
        return meter.payload_bytes / steps, meter.link_bytes / steps, worker

    def _buckets(self, units: list[extend.Unit]) -> Iterator[list[extend.Unit]]:
        bucket: list[extend.Unit] = []
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

    def _copy(self, bucket: list[extend.Unit], rank: int) -> dict[str, Tensor]:
        gradients = self.gradients(rank)
        return {name: gradients[name].clone() for unit in bucket for name in unit.names}


def _reducers(units: list[extend.Unit]) -> list[extend.Reducer]:
    parts = (part for unit in units for part in inspect.parts_of(unit.reducer))
    return [part for part in parts if isinstance(part, extend.Reducer)]


class _Ranks:
    """Replicas with local steps and a strategy that synchronizes them, all in this process."""

    def __init__(self, strategy: extend.Strategy, replicas: list[extend.Replica]) -> None:
        inspect.check_placed(strategy, len(replicas), replicas[0].hosts)
        self.strategy = strategy
        self.replicas = [replica._replace(loss=0.0) for replica in replicas]
        self.states = [strategy.init(replica) for replica in self.replicas]
        self.steps = 0
        self._cluster = simulate.Simulated(len(replicas))
        self._in_flight: list[Any] | None = None

    @property
    def meters(self) -> list[inspect.Meter]:
        return self._cluster.meters

    @torch.no_grad()
    def train(self, steps: int, update: Callable[[list[extend.Replica]], None]) -> None:
        """Train for `steps` steps; completes the exchanges in flight at the end."""
        for _ in range(steps):
            self._exchange(self.strategy.before_update)
            if self.strategy.will_communicate(self.steps + 1):
                update(self.replicas)  # replicas must differ when they communicate; how far does not matter
            self._exchange(self.strategy.after_update)
            self.steps += 1
            self._overlap()
        self._land()

    def _exchange(self, around: Callable[[extend.Replica, Any], extend.Rounds]) -> None:
        results = self._cluster.run([around(*rank) for rank in self._ranks()])
        self.states = [result.state for result in results]

    def _overlap(self) -> None:
        strategy = self.strategy.overlapping
        if strategy is not None and strategy.lands(self.steps):
            self._land()
        if strategy is not None and strategy.launches(self.steps):
            launched = [strategy.launch(*rank) for rank in self._ranks()]
            self.states = [state for state, _ in launched]
            self._in_flight = self._cluster.run([rounds for _, rounds in launched])

    def _land(self) -> None:
        arrived, self._in_flight = self._in_flight, None
        strategy = self.strategy.overlapping
        if strategy is not None and arrived is not None:
            self.states = [strategy.land(*rank, result)[0] for rank, result in zip(self._ranks(), arrived, strict=True)]

    def _ranks(self) -> list[tuple[extend.Replica, Any]]:
        return list(zip(self.replicas, self.states, strict=True))
