"""Reducers: conversations about one tensor, which remember in an explicit state."""

from .ada_comp import AdaComp
from .average import Average, as_reducer
from .choose import Choose, When
from .contracting import goes_by_rate
from .dgc import Momentum
from .difference import Difference
from .ef21 import EF21
from .error_feedback import Feedback
from .fitted_float import Matched
from .leader_top_k import Led
from .learned import Learned
from .lgc import LGC
from .lgc_server import LGCServer
from .power_iteration import PowerIteration
from .power_sgd import PowerSGD
from .server import Server, loses_nothing, servers, servers_apart
from .sharded import Sharded
from .warm_up import After

__all__ = [
    "EF21",
    "LGC",
    "AdaComp",
    "After",
    "Average",
    "Choose",
    "Difference",
    "Feedback",
    "LGCServer",
    "Learned",
    "Led",
    "Matched",
    "Momentum",
    "PowerIteration",
    "PowerSGD",
    "Server",
    "Sharded",
    "When",
    "as_reducer",
    "goes_by_rate",
    "loses_nothing",
    "servers",
    "servers_apart",
]
