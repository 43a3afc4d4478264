"""Whether a strategy goes with so many ranks."""

from ..core import Strategy
from ..core.described import parts_of
from ..reducers import Server, servers, servers_apart
from .data_parallel import DataParallel
from .hierarchical import Nested
from .independent import Independent


def check_placed(strategy: Strategy, size: int, hosts: tuple[str, ...] = ()) -> None:
    """ValueError if it does not, or if a server of its is not among those who speak to it."""
    strategy.check(size, hosts)
    apart = servers_apart(strategy)
    if apart and not isinstance(strategy, DataParallel):
        raise ValueError(f"a server that is apart goes with gradients that are averaged in each step, not {strategy!r}")
    if not servers(strategy):
        return
    last, there = max(servers(strategy)), _smallest(strategy, size, hosts)
    if last >= there:
        among = "" if there == size else ", as those who speak with each other"
        raise ValueError(f"{strategy!r} has a server at rank {last}, but there are only {there} ranks{among}")
    if len(apart) >= size:
        raise ValueError(f"{strategy!r} needs ranks that train, beside what serves")
    for part in parts_of(strategy):
        if isinstance(part, Server) and part.at in apart and not part.apart:
            raise ValueError(f"rank {part.at} cannot both train and only serve: {part!r} is not apart, another one is")


def _smallest(strategy: Strategy, size: int, hosts: tuple[str, ...]) -> int:
    """How many ranks there are, at least, in any world that it speaks in."""
    groups = strategy.groups_of(size, hosts) if isinstance(strategy, Independent) else ()
    between = [len(groups)] if isinstance(strategy, Nested) else []
    return min([*map(len, groups), *between], default=size)
