"""Reducers: conversations that agree on one tensor across ranks, with explicit state (residuals, factors, seeds)."""

from .ada_comp import AdaComp
from .average import Average, as_reducer
from .choose import Choose, When
from .contraction import uses_learning_rate
from .dgc import DGC
from .difference import Difference
from .ef21 import EF21
from .error_feedback import ErrorFeedback
from .fitted_float import FittedFloat
from .leader_top_k import LeaderTopK
from .learned import Learned, learning_of
from .lgc import LGC
from .lgc_server import LGCServer
from .power_iteration import PowerIteration
from .power_sgd import PowerSGD
from .server import Server, dedicated_servers, servers
from .sharded import Sharded
from .warm_up import WarmUp

__all__ = [
    "DGC",
    "EF21",
    "LGC",
    "AdaComp",
    "Average",
    "Choose",
    "Difference",
    "ErrorFeedback",
    "FittedFloat",
    "LGCServer",
    "LeaderTopK",
    "Learned",
    "PowerIteration",
    "PowerSGD",
    "Server",
    "Sharded",
    "WarmUp",
    "When",
    "as_reducer",
    "dedicated_servers",
    "learning_of",
    "servers",
    "uses_learning_rate",
]
