from collections.abc import Collection

from ..core import Peers


def all_ranks(size: int, without: Collection[int] = ()) -> Peers:
    """The mean over all ranks; those in `without` only receive it."""
    weight = 1 / max(1, size - len(without))
    return Peers("world", tuple((rank, 0.0 if rank in without else weight) for rank in range(size)))
