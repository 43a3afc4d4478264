"""Stopping after an error: other ranks receive the reason, and the rank that failed first shows its error first."""

import threading
import time
from collections.abc import Callable, Sequence

from ..transports import PeerLostError, ProcessGroupTransport, Transport
from .contract import ContractError

# Launchers kill all processes when one has ended. So ranks that stop because of another rank wait before they end,
# until that rank has notified all others and printed its error.
SECONDS_PER_RANK, MAX_SECONDS = 1.0, 5.0


def leave(problem: BaseException, world: Transport, notify: Sequence[Callable[[BaseException], None]]) -> None:
    """Notify all ranks that wait for this one, in whatever exchange, that it has stopped, and why."""
    if not isinstance(world, ProcessGroupTransport):
        for send in notify:
            send(problem)
        return
    # Concurrently: each call waits until the others have received it, and they receive on one channel after the other.
    threads = [threading.Thread(target=send, args=(problem,), daemon=True) for send in notify]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if isinstance(problem, ContractError | PeerLostError):
        time.sleep(min(SECONDS_PER_RANK * max(1, world.size - 1), MAX_SECONDS))
