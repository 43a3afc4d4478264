from collections.abc import Collection

from ..core import Peers


def all_ranks(size: int, without: Collection[int] = ()) -> Peers:
    """The mean over all ranks; those in `without` only receive it.

    Examples:
        >>> from thinwire.extend import all_ranks
        >>> all_ranks(2).weights
        ((0, 0.5), (1, 0.5))
        >>> all_ranks(3, without={0}).weights  # rank 0 is a server
        ((0, 0.0), (1, 0.5), (2, 0.5))
    """
    weight = 1 / max(1, size - len(without))
    return Peers("world", tuple((rank, 0.0 if rank in without else weight) for rank in range(size)))
