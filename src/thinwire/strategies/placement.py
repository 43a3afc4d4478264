"""Checks a strategy against the number of ranks."""

from ..core import Strategy
from ..core.described import parts_of
from ..reducers import Server, dedicated_servers, servers
from .data_parallel import DataParallel
from .hierarchical import Hierarchical


def check_placed(strategy: Strategy, size: int, hosts: tuple[str, ...] = ()) -> None:
    """ValueError if the strategy does not work with these ranks, or if a server is not one of the ranks that use it."""
    strategy.check(size, hosts)
    dedicated = dedicated_servers(strategy)
    if dedicated and not isinstance(strategy, DataParallel):
        raise ValueError(f"a dedicated server needs a method that averages gradients in each step, not {strategy!r}")
    if not servers(strategy):
        return
    last, available = max(servers(strategy)), _smallest_group(strategy, size, hosts)
    if last >= available:
        scope = "" if available == size else " in the smallest group that exchanges"
        raise ValueError(f"{strategy!r} has a server at rank {last}, but there are only {available} ranks{scope}")
    if len(dedicated) >= size:
        raise ValueError(f"{strategy!r} needs ranks that train besides its dedicated servers")
    for part in parts_of(strategy):
        if isinstance(part, Server) and part.rank in dedicated and not part.dedicated:
            raise ValueError(f"rank {part.rank} cannot both train and be a dedicated server: {part!r} trains there")


def _smallest_group(strategy: Strategy, size: int, hosts: tuple[str, ...]) -> int:
    """The size of the smallest group of ranks that exchange with each other."""
    groups = strategy.groups_of(size, hosts)
    between = [len(groups)] if isinstance(strategy, Hierarchical) else []
    return min([*map(len, groups), *between], default=size)
