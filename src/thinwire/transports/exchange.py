"""One round of a talk: messages in, replies out, without I/O.

A round yields posts (buffers for each rank, and what is expected back) and a transport delivers them. So every
transport, real or simulated, groups, seals, decodes, sums and counts with the same lines.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Generator, Iterable
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..core import EACH, Envelope, PayloadError, Reply, Rounds
from ..wire import payload
from .all_reduce import AllReduce
from .encoded_message import EncodedMessages
from .meter import Meter

SIZE_BYTES = 8  # of a length that is told before payloads whose length varies


class Post(NamedTuple):
    """One exchange of buffers: what goes to each rank, and how many bytes come from each."""

    outgoing: dict[int, Tensor]
    incoming: dict[int, int]
    into: dict[int, Tensor]  # where to put what comes from a rank, for those that have a place already
    about: "tuple[SentMessage, ...]" = ()  # the messages of this round, for transports that compare them
    among: tuple[int, ...] = ()  # the ranks that take part in this round


class SentMessage(NamedTuple):
    """A message, and the other ranks that this one says it to and hears it from."""

    envelope: Envelope
    tells: Collection[int]
    hears: Collection[int]


Posts = Generator[Post, dict[int, Tensor], Any]
Shared = dict[Any, Tensor]  # what all ranks compute alike in a round; a simulation computes it once
Place = tuple[tuple[int, ...], int]  # the ranks that take part in a round, and how many rounds they had before it


def rounds(talk: Rounds, rank: int, size: int, meter: Meter, shared: defaultdict[Place, Shared]) -> Posts:
    """Hold a talk, round by round; returns its outcome."""
    replies: Any = None
    counts: Counter[tuple[int, ...]] = Counter()
    while True:
        start = perf_counter()
        try:
            envelopes = talk.send(replies)
        except StopIteration as end:
            meter.decode_seconds += perf_counter() - start
            return end.value
        meter.encode_seconds += perf_counter() - start
        meter.rounds += 1
        among = _among(envelopes, rank, size)
        replies = yield from _Round(envelopes, among, rank, meter, shared[among, counts[among]]).hold()
        counts[among] += 1
        shared.pop((among, counts[among] - 2), None)  # no rank is more than a round behind


class _Round:
    """Its ranks are numbered from 0, whatever their numbers are among all."""

    def __init__(
        self, envelopes: list[Envelope], among: tuple[int, ...], name: int, meter: Meter, shared: Shared
    ) -> None:
        rank, size = among.index(name), len(among)
        for envelope in envelopes:
            _check(envelope, rank, size)
        self.envelopes, self.among, self.rank, self.meter, self.shared = envelopes, among, rank, meter, shared
        self.others = [r for r in range(size) if r != rank]
        self.sealed = [EncodedMessages(i, e, rank, size) for i, e in enumerate(envelopes) if not _is_summed(e, size)]
        linear = [(i, e) for i, e in enumerate(envelopes) if _is_summed(e, size)]
        self.summed = AllReduce.grouped(linear, rank, size)
        by_index = {message.index: message for message in self.sealed}
        self.about = tuple(
            SentMessage(e, self._names(by_index[i].receivers), self._names(by_index[i].speakers))
            if i in by_index
            else SentMessage(e, self._names(self.others), self._names(self.others))
            for i, e in enumerate(envelopes)
        )

    def hold(self) -> Generator[Post, dict[int, Tensor], list[Reply[Tensor]]]:
        start = perf_counter()
        for about, nbytes in (said for group in self.summed for said in group.speak()):
            self.meter.count_payload(about, nbytes)
        for message in self.sealed:
            self.meter.count_payload(message.message.about, message.speak())
        self.meter.encode_seconds += perf_counter() - start

        yield from self._say()
        start = perf_counter()
        replies = {message.index: message.reply(self.shared) for message in self.sealed}
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

    def _say(self) -> Posts:
        """Tell each rank what it is to hear from me: its shards of my signals, then my sealed messages."""
        outgoing = {
            r: [g.signal_shard(r) for g in self.summed] + [m.said[r] for m in self.sealed if r in m.said]
            for r in self.others
        }
        incoming = yield from self._sizes(outgoing)
        heard = yield from self._post(_all_joined(outgoing), incoming)
        nothing, shards = _joined([]), [g.shard_bytes(self.rank) for g in self.summed]
        for r in self.others:
            messages = [m for m in self.sealed if r in m.speakers]
            if not (shards or messages):
                continue
            lengths = shards + [m.heard_bytes for m in messages]
            pieces = payload.split(heard.get(r, nothing), lengths)  # nothing comes from who has nothing to say
            for group, piece in zip(self.summed, pieces, strict=False):
                group.heard[r] = piece
            for message, piece in zip(messages, pieces[len(self.summed) :], strict=True):
                message.heard[r] = piece

    def _sizes(self, outgoing: dict[int, list[Tensor]]) -> Generator[Post, dict[int, Tensor], dict[int, int]]:
        """How many bytes each rank will tell me; where that varies, it says so first."""
        shards = sum(g.shard_bytes(self.rank) for g in self.summed)
        sizes = {r: shards + sum(m.heard_bytes or 0 for m in self.sealed if r in m.speakers) for r in self.others}
        varied = [m for m in self.sealed if m.heard_bytes is None]
        if varied:
            sums = {r: sum(piece.nbytes for piece in pieces) for r, pieces in outgoing.items()}
            written = {nbytes: torch.tensor([nbytes]).view(torch.uint8) for nbytes in set(sums.values())}
            told = {
                r: written[sums[r]].to(pieces[0].device)
                for r, pieces in outgoing.items()
                if any(r in m.said for m in varied)
            }
            awaited = {r: SIZE_BYTES for r in self.others if any(r in m.speakers for m in varied)}
            heard = yield from self._post(told, awaited)
            most = {r: sum(m.most_bytes for m in varied if r in m.speakers) for r in heard}
            for r, size in heard.items():
                told_size = int(size.cpu().view(torch.int64))
                if not sizes[r] <= told_size <= sizes[r] + most[r]:
                    allowed = sizes[r] + most[r]
                    raise PayloadError(
                        f"rank {self.among[r]} announces {told_size} bytes, where {allowed} are the most"
                    )
                sizes[r] = told_size
        return sizes

    def _share_sums(self) -> Posts:
        """Gather the shards that every rank has summed."""
        mine = _joined([g.total_shard(self.rank) for g in self.summed])
        incoming = {r: sum(g.shard_bytes(r) for g in self.summed) for r in self.others}
        alone = len(self.summed) == 1
        into = {r: self.summed[0].total_shard(r) for r in self.others} if alone else {}
        heard = yield from self._post(dict.fromkeys(self.others, mine), incoming, into)
        for r, buffer in heard.items():
            pieces = payload.split(buffer, [g.shard_bytes(r) for g in self.summed])
            for group, piece in zip(self.summed, pieces, strict=True):
                place = group.total_shard(r)
                if place.data_ptr() != piece.data_ptr():
                    place.copy_(piece)

    def _post(
        self, outgoing: dict[int, Tensor], incoming: dict[int, int], into: dict[int, Tensor] | None = None
    ) -> Generator[Post, dict[int, Tensor], dict[int, Tensor]]:
        name = self.among
        outgoing = {name[r]: buffer for r, buffer in outgoing.items() if buffer.numel()}
        incoming = {name[r]: nbytes for r, nbytes in incoming.items() if nbytes}
        into = {name[r]: buffer for r, buffer in (into or {}).items()}
        self.meter.count_carried({r: buffer.nbytes for r, buffer in outgoing.items()}, incoming)
        heard = yield Post(outgoing, incoming, into, self.about, name)
        return {name.index(r): buffer for r, buffer in heard.items()}

    def _names(self, ranks: Iterable[int]) -> tuple[int, ...]:
        return tuple(self.among[r] for r in ranks)


def _among(envelopes: list[Envelope], rank: int, size: int) -> tuple[int, ...]:
    """The ranks that take part in a round."""
    found = {envelope.peers.within for envelope in envelopes} or {None}
    if len(found) > 1:
        raise ValueError(f"a round is held among the same ranks, not among {' and '.join(map(str, found))}")
    among = found.pop()
    if among is None:
        return tuple(range(size))
    if rank not in among or not all(a < b for a, b in zip([-1, *among], [*among, size], strict=True)):
        raise ValueError(f"rank {rank} of {size} cannot speak among ranks {among}: with itself, each once and in order")
    return among


def _is_summed(envelope: Envelope, size: int) -> bool:
    peers, message = envelope
    of_all = peers.receivers is None and len(peers.weights) == size
    return message.codec.linear and message.source is None and message.target is None and of_all


def _check(envelope: Envelope, rank: int, size: int) -> None:
    peers, message = envelope
    ranks = [rank for rank, _ in peers.weights]
    if not all(a < b for a, b in zip([-1, *ranks], [*ranks, size], strict=True)):
        raise ValueError(f"{peers!r} does not weigh some of the ranks 0 to {size - 1}, each once and in order")
    if peers.receivers is not None and not {rank, *peers.receivers} <= set(range(size)):
        raise ValueError(f"{peers!r} is heard by ranks that are not here: there are {size}")
    if peers.receivers is None and rank not in ranks:
        raise ValueError(f"{peers!r} is not for rank {rank} to speak to")
    some = peers.receivers is not None or len(ranks) < size
    if some and (message.source is not None or message.target is not None):
        raise ValueError("a message to some of the ranks has neither a source nor a target: all of them speak")
    for what, named in (("source", message.source), ("target", message.target)):
        if named is not None and not EACH <= named < size:
            raise ValueError(f"a message names rank {named} as its {what}, but there are only {size} ranks")
    if message.source is not None and message.target == EACH:
        raise ValueError("shards are of a sum over all, so a message with shards as its target has no source")


def _all_joined(outgoing: dict[int, list[Tensor]]) -> dict[int, Tensor]:
    """Each rank's pieces as one buffer; ranks that are told the same share it."""
    keys = {r: tuple(map(id, pieces)) for r, pieces in outgoing.items()}
    made = {key: _joined(outgoing[r]) for key, r in {key: r for r, key in keys.items()}.items()}
    return {r: made[key] for r, key in keys.items()}


def _joined(pieces: list[Tensor]) -> Tensor:
    if len(pieces) == 1:
        return pieces[0]
    return torch.cat(pieces) if pieces else torch.empty(0, dtype=torch.uint8)
