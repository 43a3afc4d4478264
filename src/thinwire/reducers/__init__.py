"""Reducers: conversations about one tensor, which remember in an explicit state."""

from .ada_comp import AdaComp
from .after import After
from .average import Average, as_reducer
from .choose import Choose, When
from .contracting import goes_by_rate
from .difference import Difference
from .ef21 import EF21
from .feedback import Feedback
from .learned import Learned
from .led import Led
from .lgc import LGC
from .lgc_server import LGCServer
from .matched import Matched
from .momentum import Momentum
from .power_iteration import PowerIteration
from .power_sgd import PowerSGD
from .server import Server, loses_nothing, servers, servers_apart
from .sharded import Sharded

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
