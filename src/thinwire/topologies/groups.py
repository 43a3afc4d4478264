"""Groups of ranks, numbered from 0 within a group."""

from abc import ABC, abstractmethod
from collections import defaultdict
from dataclasses import dataclass, replace

from torch import Tensor

from ..core import Envelope, Replica, Reply, Rounds
from ..core.described import Described

Groups = tuple[tuple[int, ...], ...]  # of ranks, in order


class Grouping(Described, ABC):
    """A rule that divides ranks into groups."""

    @abstractmethod
    def of(self, size: int, hosts: tuple[str, ...] = ()) -> Groups:
        """The groups of `size` ranks on these hosts; raises ValueError if the rule does not apply."""


@dataclass(frozen=True, repr=False)
class OneGroup(Grouping):
    """All ranks in one group."""

    def of(self, size: int, hosts: tuple[str, ...] = ()) -> Groups:
        return (tuple(range(size)),)


@dataclass(frozen=True, repr=False)
class GroupsOf(Grouping):
    """Groups of `size` consecutive ranks.

    Examples:
        >>> from thinwire import GroupsOf
        >>> GroupsOf(2).of(6)
        ((0, 1), (2, 3), (4, 5))
    """

    size: int

    def __post_init__(self) -> None:
        if not (isinstance(self.size, int) and self.size >= 1):
            raise ValueError(f"GroupsOf takes 1 rank or more, not {self.size!r}")

    def of(self, size: int, hosts: tuple[str, ...] = ()) -> Groups:
        if size % self.size:
            raise ValueError(f"{size} ranks cannot be divided into {self!r}: {size % self.size} would be left over")
        return tuple(tuple(range(first, first + self.size)) for first in range(0, size, self.size))


@dataclass(frozen=True, repr=False)
class ByHost(Grouping):
    """One group per machine.

    Examples:
        >>> from thinwire import ByHost
        >>> ByHost().of(4, ("a", "a", "b", "b"))
        ((0, 1), (2, 3))
    """

    def of(self, size: int, hosts: tuple[str, ...] = ()) -> Groups:
        found: dict[str, list[int]] = defaultdict(list)
        for rank, host in enumerate(hosts or ("",) * size):
            found[host].append(rank)
        return tuple(map(tuple, found.values()))


def group_of(groups: Groups, rank: int) -> tuple[int, ...]:
    return next(ranks for ranks in groups if rank in ranks)


def part_of(replica: Replica, ranks: tuple[int, ...]) -> Replica:
    """The replica with rank, size and hosts of the group."""
    hosts = tuple(replica.hosts[rank] for rank in ranks) if replica.hosts else ()
    return replica._replace(rank=ranks.index(replica.rank), size=len(ranks), hosts=hosts)


def within(ranks: tuple[int, ...], rounds: Rounds, unit: str | None = None) -> Rounds:
    """Run rounds within a group of ranks, which the rounds number from 0.

    If a unit is given, the meter counts all messages under its name.
    """
    replies: list[Reply[Tensor]] | None = None
    while True:
        try:
            envelopes = rounds.send(replies)  # type: ignore[arg-type]  # None starts it
        except StopIteration as end:
            return end.value
        replies = yield [_within(ranks, envelope, unit) for envelope in envelopes]


def _within(ranks: tuple[int, ...], envelope: Envelope, unit: str | None) -> Envelope:
    peers, message = envelope
    named = ranks if peers.within is None else tuple(ranks[rank] for rank in peers.within)
    return Envelope(replace(peers, within=named), message if unit is None else message._replace(unit=unit))
