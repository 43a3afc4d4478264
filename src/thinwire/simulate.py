"""To run many ranks in one process, with the same bits and the same bytes as real processes.

`InProcessCluster` runs a training script or function on every rank. `Simulated` runs one exchange of all ranks and
checks that their messages match.
"""

from .runtime.replica_of import replica_of
from .transports import InProcessCluster, LockStepError, Simulated

__all__ = ["InProcessCluster", "LockStepError", "Simulated", "replica_of"]
