"""The bytes that one rank's link carries for any world size, without simulating the other ranks.

All ranks are assumed to have the same gradients, so one rank's messages represent those of all. Their sizes are
measured: a single rank sends each message through the transport. The link bytes follow from the message's senders and
receivers, by the rules of the transports (docs/scale.md).
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Generator, Mapping
from statistics import mean
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from thinwire import extend, inspect, simulate

LENGTH_BYTES = 8  # of the length that is sent before a message of variable length
SAMPLES = 8  # shards of a tensor that are measured if their sizes vary


class Load(NamedTuple):
    """The cost of a step for the rank whose link carries the most."""

    payload: float  # bytes
    link: float  # bytes
    exchanges: float  # sequential ones


class Flow(NamedTuple):
    """Where an encoded message goes, and whether its length varies."""

    route: extend.Route
    varies: bool

    def receivers(self, rank: int, ranks: int) -> int:
        """The number of other ranks that receive from a rank."""
        return _others(self.route.receivers(ranks), rank) if rank in self.route.senders(ranks) else 0

    def senders(self, rank: int, ranks: int) -> int:
        """The number of other ranks that a rank receives from."""
        return _others(self.route.senders(ranks), rank) if rank in self.route.receivers(ranks) else 0

    def messages(self, rank: int, ranks: int) -> int:
        """The number of messages that a rank encodes."""
        if rank not in self.route.senders(ranks):
            return 0
        return ranks if self.route.result == "shard" else 1


def _others(some: range, rank: int) -> int:
    return len(some) - (rank in some)


class Round:
    """The messages of a round, summed by route."""

    def __init__(self) -> None:
        self.summed: Counter[torch.dtype] = Counter()  # entries of signals that are all-reduced
        self.encoded: defaultdict[Flow, float] = defaultdict(float)  # bytes for one receiver

    def load(self, rank: int, ranks: int) -> Load:
        others = ranks - 1
        full = sum(count * dtype.itemsize for dtype, count in self.summed.items())
        shard = sum(_shard(count, rank, ranks) * dtype.itemsize for dtype, count in self.summed.items())
        payload, out, into = float(full), float(full - shard), float(others * shard)
        for flow, nbytes in self.encoded.items():
            payload += nbytes * flow.messages(rank, ranks)
            out += nbytes * flow.receivers(rank, ranks)
            into += nbytes * flow.senders(rank, ranks)
        varied = [flow for flow in self.encoded if flow.varies]
        # One length for each other rank that sends or receives in any of these flows.
        lengths = max((max(flow.receivers(rank, ranks), flow.senders(rank, ranks)) for flow in varied), default=0)
        posts = (LENGTH_BYTES * lengths, max(out, into), max(others * shard, full - shard))
        return Load(payload, sum(posts), sum(nbytes > 0 for nbytes in posts))


def _shard(count: int, rank: int, ranks: int) -> int:
    """How many of `count` entries a rank sums; the last ranks may have fewer."""
    size = -(-count // ranks)
    return min(max(count - rank * size, 0), size)


class _SizesVaryError(Exception):
    """A message has a size that depends on the values."""


class RankTraffic:
    """The messages of one rank in several steps, for a given world size."""

    def __init__(
        self,
        strategy: extend.GradientAveraging,
        replica: extend.Replica,
        gradients: Mapping[str, Tensor],
        ranks: int,
        steps: int,
        units: Collection[extend.Unit] | None = None,  # None: all
    ) -> None:
        self.ranks = ranks
        self.in_shards = False  # whether any message is sharded, so that its size depends on the world size
        self.varies = False  # whether sizes depend on the values
        self.answers_vary = False  # whether they depend on replies, and so on how the gradients of the ranks differ
        self._rounds: defaultdict[tuple[int, int], Round] = defaultdict(Round)  # by step, and number within the step
        units = strategy.units(replica) if units is None else units
        parts = [part for unit in units for part in inspect.parts_of(unit.reducer)]
        reducers = [part for part in parts if isinstance(part, extend.Reducer)]
        self._roles_rotate = any(reducer.cycle(ranks) > 1 for reducer in reducers)
        self.steps = max(reducer.period for reducer in reducers)  # if sizes do not depend on the values
        try:
            self._run(strategy, replica, gradients, units)
        except _SizesVaryError:
            self.varies, self.steps = True, steps
            self._rounds.clear()
            self._run(strategy, replica, gradients, units)

    def _run(
        self,
        strategy: extend.GradientAveraging,
        replica: extend.Replica,
        gradients: Mapping[str, Tensor],
        units: Collection[extend.Unit],
    ) -> None:
        """One unit at a time, to save memory; the n-th messages of all units still share a round."""
        for unit in units:
            state = strategy.init(replica, [unit])
            for step in range(self.steps):
                copies = {name: gradients[name].clone() for name in unit.names}
                state = self._exchange(strategy.exchange([unit], copies, self.ranks, state), step)

    def load(self, ranks: int) -> Load:
        """The mean load of a step. `ranks` may differ from the measured world size if no message is sharded."""
        assert ranks == self.ranks or not self.in_shards
        named = {rank for r in self._rounds.values() for flow in r.encoded for rank in flow.route.named}
        # The first rank sums a full shard, and a server receives from all: no other rank carries more than these.
        candidates = {0} | named
        if max(candidates) >= ranks:
            raise ValueError(f"the method sends to rank {max(candidates)}, but there are only {ranks} ranks")
        loads = [self._load(rank, ranks) for rank in sorted(candidates)]
        if not self._roles_rotate:
            return max(loads, key=lambda load: load.link)
        # Over time, each rank has each role (leader or follower) equally often.
        targets = {flow.route.target for r in self._rounds.values() for flow in r.encoded}
        servers = [rank for rank in targets if rank is not None]
        if servers:
            return max((self._load(rank, ranks) for rank in servers), key=lambda load: load.link)
        follower = next((rank for rank in range(ranks) if rank not in candidates), None)
        if follower is not None:
            loads += [self._load(follower, ranks)] * (ranks - len(loads))
        return Load(*map(mean, zip(*loads, strict=True)))

    def worker_link(self, servers: Collection[int]) -> float:
        """The link bytes per step of the busiest rank that does not serve."""
        return max(self._load(rank, self.ranks).link for rank in range(self.ranks) if rank not in servers)

    def _load(self, rank: int, ranks: int) -> Load:
        loads = [r.load(rank, ranks) for r in self._rounds.values()]
        return Load(*(sum(numbers) / self.steps for numbers in zip(*loads, strict=True)))

    def _exchange(self, rounds: Any, step: int) -> Any:
        """Run all rounds of an exchange and count their messages; returns the final state."""
        replies, number = None, 0
        while True:
            try:
                envelopes = rounds.send(replies)
            except StopIteration as end:
                return end.value.state
            self.answers_vary |= number > 0 and any(envelope.message.codec.variable for envelope in envelopes)
            replies = [self._send(envelope.message, self._rounds[step, number]) for envelope in envelopes]
            number += 1

    def _send(self, message: extend.Message, into: Round) -> extend.Reply[Tensor]:
        codec, flow = message.codec, Flow(message.route, message.codec.variable)
        if codec.variable and not self.varies:
            raise _SizesVaryError
        if message.route.result == "shard":
            return self._send_shards(message, into.encoded, flow)
        reply, nbytes = self._measured(message)
        if codec.linear and message.route == extend.ALL_REDUCE:
            signal = inspect.layout(codec, message.tensor.shape, message.tensor.dtype)[0]
            into.summed[signal.dtype] += signal.shape.numel()
        else:
            into.encoded[flow] += nbytes
        if message.route.result == "stack":
            self.in_shards = True
            return extend.Reply(reply.reduced.expand(self.ranks, *reply.reduced.shape), reply.sent)
        return reply

    def _send_shards(
        self, message: extend.Message, encoded: defaultdict[Flow, float], flow: Flow
    ) -> extend.Reply[Tensor]:
        """Measure a few shards as a sample: their sizes are equal, or vary with the values."""
        self.in_shards = True
        tensor = extend.materialize(message.tensor)
        flat = tensor.flatten()
        size = -(-flat.numel() // self.ranks)
        shards = pad(flat, (0, size * self.ranks - flat.numel())).view(self.ranks, -1)
        count = min(self.ranks, SAMPLES) if flow.varies else 1
        chosen = [shards[i * self.ranks // count] for i in range(count)]
        sent = [self._measured(message._replace(tensor=shard)) for shard in chosen]
        encoded[flow] += mean(nbytes for _, nbytes in sent)
        return extend.Reply(sent[0][0].reduced, tensor)

    def _measured(self, message: extend.Message) -> tuple[extend.Reply[Tensor], int]:
        """The reply to a message with a world size of 1, and its payload bytes.

        Where no size depends on the values, the layout gives the bytes, and the tensor itself stands for the reply.
        """
        # A lazy reply may be more than a tensor.
        shortcut = not self.varies and (message.codec.linear or not message.lazy)
        if not shortcut:
            return _sent_alone(message)
        tensor = extend.materialize(message.tensor)
        slots = inspect.layout(message.codec, tensor.shape, tensor.dtype)
        return extend.Reply(tensor, tensor), sum(slot.nbytes for slot in slots)


def _sent_alone(message: extend.Message) -> tuple[extend.Reply[Tensor], int]:
    """Send a message with a world size of 1; returns the reply and the payload bytes."""

    def conversation() -> Generator[extend.Message, extend.Reply[Tensor], extend.Reply[Tensor]]:
        return (yield message._replace(route=extend.broadcast_from(0)))  # so that linear codecs encode it as well

    sender = simulate.Simulated(1)
    ((reply,),) = sender.run([extend.lockstep([(extend.all_ranks(1), conversation())])])
    return reply, sender.meters[0].payload_bytes
