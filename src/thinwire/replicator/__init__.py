"""Write the step of one replica, and run it in one process or many, with any method between the replicas."""

from .batch_norm import GlobalBatchNorm, global_batch_norm
from .context import Context
from .contract import ContractError
from .devices import LogicalDevice
from .metrics import Tally
from .replicator import Replicator
from .rerun import run_script

__all__ = [
    "Context",
    "ContractError",
    "GlobalBatchNorm",
    "LogicalDevice",
    "Replicator",
    "Tally",
    "global_batch_norm",
    "run_script",
]
