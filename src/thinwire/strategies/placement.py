"""Whether a strategy goes with so many ranks."""

from ..core import Strategy
from ..core.described import parts_of
from ..reducers import Server, dedicated_servers, servers
from .data_parallel import DataParallel
from .hierarchical import Hierarchical


def check_placed(strategy: Strategy, size: int, hosts: tuple[str, ...] = ()) -> None:
    """ValueError if it does not, or if a server of its is not among those who speak to it."""
    strategy.check(size, hosts)
    dedicated = dedicated_servers(strategy)
    if dedicated and not isinstance(strategy, DataParallel):
        raise ValueError(f"a dedicated server needs a method that averages gradients in each step, not {strategy!r}")
    if not servers(strategy):
        return
    last, there = max(servers(strategy)), _smallest(strategy, size, hosts)
    if last >= there:
        among = "" if there == size else ", as those who speak with each other"
        raise ValueError(f"{strategy!r} has a server at rank {last}, but there are only {there} ranks{among}")
    if len(dedicated) >= size:
        raise ValueError(f"{strategy!r} needs ranks that train, beside what serves")
    for part in parts_of(strategy):
        if isinstance(part, Server) and part.rank in dedicated and not part.dedicated:
            raise ValueError(f"rank {part.rank} cannot both train and be a dedicated server: {part!r} trains there")


def _smallest(strategy: Strategy, size: int, hosts: tuple[str, ...]) -> int:
    """How many ranks there are, at least, in any world that it speaks in."""
    groups = strategy.groups_of(size, hosts)
    between = [len(groups)] if isinstance(strategy, Hierarchical) else []
    return min([*map(len, groups), *between], default=size)
