"""Checks that all ranks are about to train the same thing in the same way."""

import hashlib
from itertools import zip_longest

from ..transports import Transport


def agree(transport: Transport, lines: list[str]) -> None:
    """Compare these lines with those of all ranks. If they differ, the same ValueError is raised on all ranks."""
    text = "\n".join(lines).encode()
    if len(set(transport.gather(hashlib.sha256(text).digest()))) == 1:
        return
    by_rank = [received.decode().split("\n") for received in transport.gather(text)]
    first = by_rank[0]
    rank = next(r for r, other in enumerate(by_rank) if other != first)
    expected, found = next((a, b) for a, b in zip_longest(first, by_rank[rank], fillvalue="nothing more") if a != b)
    transport.close()
    raise ValueError(f"the ranks do not agree on what to train.\n  rank 0 has {expected}\n  rank {rank} has {found}")
