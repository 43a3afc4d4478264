"""Who sends a message, who receives it, and what the receivers get: the collectives of `torch.distributed`."""

from enum import Enum
from typing import NamedTuple


class Collective(Enum):
    """Each with its senders, its receivers, and what they get of the messages."""

    ALL_REDUCE = ("all", "all", "sum")
    REDUCE = ("all", "one", "sum")
    REDUCE_SCATTER = ("all", "all", "shard")  # of the sum: rank r gets shard r
    ALL_GATHER = ("all", "all", "stack")
    GATHER = ("all", "one", "stack")
    BROADCAST = ("one", "all", "message")
    SEND = ("one", "one", "message")


class Route(NamedTuple):
    """A collective and the ranks that it names.

    Examples:
        >>> from thinwire.extend import ALL_REDUCE, gather_to, send
        >>> print(gather_to(0), send(0, 2), sep=", ")
        gather to 0, send from 0 to 2
        >>> ALL_REDUCE.result, list(gather_to(0).receivers(size=4))
        ('sum', [0])
    """

    collective: Collective
    source: int | None = None  # the one rank that sends
    target: int | None = None  # the one rank that receives

    @property
    def problem(self) -> str:
        """The wrong number of ranks named, if the collective needs others; empty if the route is right."""
        for word, named, needed in zip(
            ("source", "target"), (self.source, self.target), self.collective.value, strict=False
        ):
            if (named is not None) != (needed == "one"):
                return f"{self.collective.name} takes {'a' if needed == 'one' else 'no'} {word}"
        return ""

    @property
    def result(self) -> str:
        """What receivers get: the weighted sum, their shard of it, all messages as a stack, or the one message."""
        return self.collective.value[2]

    @property
    def named(self) -> frozenset[int]:
        """The ranks that send or receive alone."""
        return frozenset(rank for rank in (self.source, self.target) if rank is not None)

    def senders(self, size: int) -> range:
        return range(size) if self.source is None else range(self.source, self.source + 1)

    def receivers(self, size: int) -> range:
        return range(size) if self.target is None else range(self.target, self.target + 1)

    def __str__(self) -> str:
        ends = [f"{word} {rank}" for word, rank in (("from", self.source), ("to", self.target)) if rank is not None]
        return " ".join([self.collective.name.lower(), *ends])


ALL_REDUCE = Route(Collective.ALL_REDUCE)  # every rank sends, and every rank receives the weighted sum
ALL_GATHER = Route(Collective.ALL_GATHER)  # every rank receives all messages, stacked by rank
REDUCE_SCATTER = Route(Collective.REDUCE_SCATTER)  # rank r receives shard r of the weighted sum


def reduce_to(rank: int) -> Route:
    """All ranks send; one rank receives the weighted sum."""
    return Route(Collective.REDUCE, target=rank)


def gather_to(rank: int) -> Route:
    """All ranks send; one rank receives all messages, stacked by rank."""
    return Route(Collective.GATHER, target=rank)


def broadcast_from(rank: int) -> Route:
    """One rank sends; all ranks receive its message."""
    return Route(Collective.BROADCAST, source=rank)


def send(source: int, target: int) -> Route:
    """One rank sends its message to one other."""
    return Route(Collective.SEND, source, target)
