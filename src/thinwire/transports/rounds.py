"""A round of an exchange: messages in, replies out, without I/O.

A round yields posts (the buffers for each rank, and the sizes of those that come back). A transport delivers them. So
every transport, real or simulated, groups, encodes, decodes, sums and counts with the same code.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Generator, Iterable
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..core import ALL_REDUCE, Envelope, PayloadError, Reply, Rounds
from ..wire import payload
from .all_reduce import AllReduce
from .encoded_message import EncodedMessage
from .meter import Meter

SIZE_BYTES = 8  # of a length, which is sent before payloads of variable length


class Post(NamedTuple):
    """One transfer of buffers: those for each rank, and how many bytes come from each."""

    outgoing: dict[int, Tensor]
    incoming: dict[int, int]
    into: dict[int, Tensor]  # preallocated receive buffers, by rank
    messages: "tuple[RoutedMessage, ...]" = ()  # of this round, for transports that compare them
    members: tuple[int, ...] = ()  # the ranks that take part in this round


class RoutedMessage(NamedTuple):
    """A message, with the other ranks that this one sends it to and receives it from."""

    envelope: Envelope
    receivers: Collection[int]
    senders: Collection[int]


Posts = Generator[Post, dict[int, Tensor], Any]
Shared = dict[Any, Tensor]  # results of a round that are equal on all ranks; a simulation computes them once
RoundKey = tuple[tuple[int, ...], int]  # the members of a round, and its number for these members


def rounds(exchange: Rounds, rank: int, size: int, meter: Meter, shared: defaultdict[RoundKey, Shared]) -> Posts:
    """Run an exchange round by round; returns its result."""
    replies: Any = None
    counts: Counter[tuple[int, ...]] = Counter()
    while True:
        start = perf_counter()
        try:
            envelopes = exchange.send(replies)
        except StopIteration as end:
            meter.decode_seconds += perf_counter() - start
            return end.value
        meter.encode_seconds += perf_counter() - start
        meter.rounds += 1
        members = _members(envelopes, rank, size)
        replies = yield from _Round(envelopes, members, rank, meter, shared[members, counts[members]]).run()
        counts[members] += 1
        shared.pop((members, counts[members] - 2), None)  # no rank is more than a round behind


class _Round:
    """One round between its members. In here, ranks are indices into `members`, not global ranks."""

    def __init__(
        self, envelopes: list[Envelope], members: tuple[int, ...], global_rank: int, meter: Meter, shared: Shared
    ) -> None:
        rank, size = members.index(global_rank), len(members)
        for envelope in envelopes:
            _check(envelope, rank, size)
        self.envelopes, self.members, self.rank, self.meter, self.shared = envelopes, members, rank, meter, shared
        self.others = [r for r in range(size) if r != rank]
        self.encoded = [EncodedMessage(i, e, rank, size) for i, e in enumerate(envelopes) if not _is_summed(e, size)]
        linear = [(i, e) for i, e in enumerate(envelopes) if _is_summed(e, size)]
        self.summed = AllReduce.grouped(linear, rank, size)
        by_index = {message.index: message for message in self.encoded}
        self.messages = tuple(
            RoutedMessage(e, self._global(by_index[i].receivers), self._global(by_index[i].senders))
            if i in by_index
            else RoutedMessage(e, self._global(self.others), self._global(self.others))
            for i, e in enumerate(envelopes)
        )

    def run(self) -> Generator[Post, dict[int, Tensor], list[Reply[Tensor]]]:
        start = perf_counter()
        for unit, nbytes in (sizes for group in self.summed for sizes in group.payload_bytes()):
            self.meter.count_payload(unit, nbytes)
        for message in self.encoded:
            self.meter.count_payload(message.message.unit, message.encode())
        self.meter.encode_seconds += perf_counter() - start

        yield from self._transfer()
        start = perf_counter()
        replies = {message.index: message.reply(self.shared) for message in self.encoded}
        for group in self.summed:
            group.add_up()
        self.meter.decode_seconds += perf_counter() - start

        if self.summed:
            yield from self._share_sums()
            start = perf_counter()
            for group in self.summed:
                replies |= group.replies(self.shared)
            self.meter.decode_seconds += perf_counter() - start
        return [replies[i] for i in range(len(self.envelopes))]

    def _transfer(self) -> Posts:
        """Send each rank its shards of the linear signals, then the encoded messages; receive theirs."""
        outgoing = {
            r: [g.signal_shard(r) for g in self.summed] + [m.outgoing[r] for m in self.encoded if r in m.outgoing]
            for r in self.others
        }
        incoming = yield from self._sizes(outgoing)
        received = yield from self._post(_all_concatenated(outgoing), incoming)
        empty, shards = _concatenated([]), [g.shard_bytes(self.rank) for g in self.summed]
        for r in self.others:
            messages = [m for m in self.encoded if r in m.senders]
            if not (shards or messages):
                continue
            lengths = shards + [m.buffer_bytes for m in messages]
            pieces = payload.split(received.get(r, empty), lengths)  # a rank may send no bytes
            for group, piece in zip(self.summed, pieces, strict=False):
                group.received[r] = piece
            for message, piece in zip(messages, pieces[len(self.summed) :], strict=True):
                message.received[r] = piece

    def _sizes(self, outgoing: dict[int, list[Tensor]]) -> Generator[Post, dict[int, Tensor], dict[int, int]]:
        """Bytes to expect from each rank. If messages vary in length, ranks send each other the lengths first."""
        shards = sum(g.shard_bytes(self.rank) for g in self.summed)
        sizes = {r: shards + sum(m.buffer_bytes or 0 for m in self.encoded if r in m.senders) for r in self.others}
        variable = [m for m in self.encoded if m.buffer_bytes is None]
        if variable:
            totals = {r: sum(piece.nbytes for piece in pieces) for r, pieces in outgoing.items()}
            as_bytes = {nbytes: torch.tensor([nbytes]).view(torch.uint8) for nbytes in set(totals.values())}
            lengths = {
                r: as_bytes[totals[r]].to(pieces[0].device)
                for r, pieces in outgoing.items()
                if any(r in m.outgoing for m in variable)
            }
            expected = {r: SIZE_BYTES for r in self.others if any(r in m.senders for m in variable)}
            received = yield from self._post(lengths, expected)
            most = {r: sum(m.max_bytes for m in variable if r in m.senders) for r in received}
            for r, size in received.items():
                announced = int(size.cpu().view(torch.int64))
                if not sizes[r] <= announced <= sizes[r] + most[r]:
                    allowed = sizes[r] + most[r]
                    raise PayloadError(
                        f"rank {self.members[r]} announces {announced} bytes, but at most {allowed} are allowed"
                    )
                sizes[r] = announced
        return sizes

    def _share_sums(self) -> Posts:
        """Gather the shards that every rank has summed."""
        own = _concatenated([g.total_shard(self.rank) for g in self.summed])
        incoming = {r: sum(g.shard_bytes(r) for g in self.summed) for r in self.others}
        single = len(self.summed) == 1
        into = {r: self.summed[0].total_shard(r) for r in self.others} if single else {}  # receive in place
        received = yield from self._post(dict.fromkeys(self.others, own), incoming, into)
        for r, buffer in received.items():
            pieces = payload.split(buffer, [g.shard_bytes(r) for g in self.summed])
            for group, piece in zip(self.summed, pieces, strict=True):
                shard = group.total_shard(r)
                if shard.data_ptr() != piece.data_ptr():
                    shard.copy_(piece)

    def _post(
        self, outgoing: dict[int, Tensor], incoming: dict[int, int], into: dict[int, Tensor] | None = None
    ) -> Generator[Post, dict[int, Tensor], dict[int, Tensor]]:
        members = self.members
        outgoing = {members[r]: buffer for r, buffer in outgoing.items() if buffer.numel()}
        incoming = {members[r]: nbytes for r, nbytes in incoming.items() if nbytes}
        into = {members[r]: buffer for r, buffer in (into or {}).items()}
        self.meter.count_carried({r: buffer.nbytes for r, buffer in outgoing.items()}, incoming)
        received = yield Post(outgoing, incoming, into, self.messages, members)
        return {members.index(r): buffer for r, buffer in received.items()}

    def _global(self, ranks: Iterable[int]) -> tuple[int, ...]:
        return tuple(self.members[r] for r in ranks)


def _members(envelopes: list[Envelope], rank: int, size: int) -> tuple[int, ...]:
    """The ranks that take part in a round."""
    groups = {envelope.peers.within for envelope in envelopes} or {None}
    if len(groups) > 1:
        raise ValueError(f"the messages of a round need one group of ranks, not {' and '.join(map(str, groups))}")
    members = groups.pop()
    if members is None:
        return tuple(range(size))
    if rank not in members or not all(a < b for a, b in zip([-1, *members], [*members, size], strict=True)):
        raise ValueError(
            f"rank {rank} of {size} cannot send in the group {members}: a group includes the rank itself, and each "
            "rank once and in order"
        )
    return members


def _is_summed(envelope: Envelope, size: int) -> bool:
    peers, message = envelope
    to_all = peers.receivers is None and len(peers.weights) == size
    return message.codec.linear and message.route == ALL_REDUCE and to_all


def _check(envelope: Envelope, rank: int, size: int) -> None:
    peers, message = envelope
    ranks = [rank for rank, _ in peers.weights]
    if not all(a < b for a, b in zip([-1, *ranks], [*ranks, size], strict=True)):
        raise ValueError(f"{peers!r} must weight ranks from 0 to {size - 1}, each at most once and in order")
    if peers.receivers is not None and not {rank, *peers.receivers} <= set(range(size)):
        raise ValueError(f"{peers!r} has receivers that do not exist: there are {size} ranks")
    if peers.receivers is None and rank not in ranks:
        raise ValueError(f"{peers!r} does not include rank {rank}")
    some = peers.receivers is not None or len(ranks) < size
    if some and message.route != ALL_REDUCE:
        raise ValueError(f"a message to some of the ranks must have the route all_reduce, not {message.route}")
    if message.route.problem:
        raise ValueError(f"a message has the route {message.route}: {message.route.problem}")
    missing = [named for named in message.route.named if not 0 <= named < size]
    if missing:
        raise ValueError(f"a message has the route {message.route}, but there are only {size} ranks")


def _all_concatenated(outgoing: dict[int, list[Tensor]]) -> dict[int, Tensor]:
    """The pieces for each rank as one buffer; ranks that get the same pieces share it."""
    keys = {r: tuple(map(id, pieces)) for r, pieces in outgoing.items()}
    buffers = {key: _concatenated(outgoing[r]) for key, r in {key: r for r, key in keys.items()}.items()}
    return {r: buffers[key] for r, key in keys.items()}


def _concatenated(pieces: list[Tensor]) -> Tensor:
    if len(pieces) == 1:
        return pieces[0]
    return torch.cat(pieces) if pieces else torch.empty(0, dtype=torch.uint8)
