"""One replica's step, run on one process or many, with any method between the replicas."""

from .context import Context
from .contract import ContractError
from .devices import LogicalDevice
from .replicator import Replicator
from .rerun import run_script

__all__ = ["Context", "ContractError", "LogicalDevice", "Replicator", "run_script"]
