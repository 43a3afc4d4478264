"""How a replica stops: those who wait for it hear why, and the one that stopped first is seen to have."""

import threading
import time
from collections.abc import Callable, Sequence

from ..transports import PeerLostError, ProcessGroupTransport, Transport
from .contract import ContractError

# Seconds for the one that stopped first to show its error in, as launchers end it when another one has ended. It tells
# all others before, so they are for each of those who are told, and at most.
SPEAK, LONGEST = 1.0, 5.0


def leave(problem: BaseException, world: Transport, ways: Sequence[Callable[[BaseException], None]]) -> None:
    """Tell those who wait for this replica, whatever for, that it has stopped, and why."""
    if not isinstance(world, ProcessGroupTransport):
        for tell in ways:
            tell(problem)
        return
    # At once: each waits until the others have heard, and they hear of one after the other.
    threads = [threading.Thread(target=tell, args=(problem,), daemon=True) for tell in ways]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if isinstance(problem, ContractError | PeerLostError):
        time.sleep(min(SPEAK * max(1, world.size - 1), LONGEST))
