"""thinwire: communication-efficient distributed training for PyTorch."""

from . import methods
from .attach import Handle, attach, check_momentum
from .codecs import BinMarks, Cast, Chain, Entropy, Identity, Marks, Nonzero, Quantize, RandomK, Sign, Ternary, TopK
from .core import (
    EACH,
    Codec,
    Message,
    Parameter,
    PayloadError,
    Peers,
    Reducer,
    Replica,
    Reply,
    Strategy,
    together,
)
from .lazy import Lazy, dense
from .methods import gathered, settled, sharded, strategy_of
from .notation import NotationError, parse
from .reducers import (
    AdaComp,
    After,
    Average,
    Choose,
    Feedback,
    Momentum,
    PowerIteration,
    PowerSGD,
    Server,
    Sharded,
    When,
)
from .replica import replica_of
from .session import NonFiniteError
from .strategies import DataParallel, Layer, Unit
from .topologies import world
from .transports import Collectives, LockStepError, Meter, Simulated
from .version import __version__

__all__ = [
    "EACH",
    "AdaComp",
    "After",
    "Average",
    "BinMarks",
    "Cast",
    "Chain",
    "Choose",
    "Codec",
    "Collectives",
    "DataParallel",
    "Entropy",
    "Feedback",
    "Handle",
    "Identity",
    "Layer",
    "Lazy",
    "LockStepError",
    "Marks",
    "Message",
    "Meter",
    "Momentum",
    "NonFiniteError",
    "Nonzero",
    "NotationError",
    "Parameter",
    "PayloadError",
    "Peers",
    "PowerIteration",
    "PowerSGD",
    "Quantize",
    "RandomK",
    "Reducer",
    "Replica",
    "Reply",
    "Server",
    "Sharded",
    "Sign",
    "Simulated",
    "Strategy",
    "Ternary",
    "TopK",
    "Unit",
    "When",
    "__version__",
    "attach",
    "check_momentum",
    "dense",
    "gathered",
    "methods",
    "parse",
    "replica_of",
    "settled",
    "sharded",
    "strategy_of",
    "together",
    "world",
]
