"""thinwire: communication-efficient distributed training for PyTorch.

Public names are imported on first use (PEP 562), so that `import thinwire` alone does not import torch.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from . import distributions, methods
    from .attach import attach, check_momentum
    from .codecs import (
        AdaptiveRandom,
        BinnedSign,
        Cast,
        Chain,
        Dither,
        Entropy,
        ExponentialDither,
        Identity,
        MiniFloat,
        NaturalCompression,
        Nonzero,
        Quantize,
        RandomK,
        Round,
        Shrink,
        Sign,
        SparseSign,
        Ternary,
        TopK,
    )
    from .core import EACH, Codec, Message, Parameter, PayloadError, Peers, Reducer, Replica, Reply, Strategy, lockstep
    from .core.described import parts_of
    from .core.lazy import Lazy, materialize
    from .core.outcome import Learning
    from .entropy import GenNorm, Histogram, Huffman, Laplace, Normal, Rans
    from .handle import Handle
    from .methods import gathered, served, settled, sharded, strategy_of
    from .notation import NotationError, parse
    from .reducers import (
        DGC,
        EF21,
        LGC,
        AdaComp,
        Average,
        Choose,
        Difference,
        ErrorFeedback,
        FittedFloat,
        LeaderTopK,
        LGCServer,
        PowerIteration,
        PowerSGD,
        Server,
        Sharded,
        WarmUp,
        When,
        dedicated_servers,
        servers,
    )
    from .replicator import (
        Context,
        ContractError,
        GlobalBatchNorm,
        LogicalDevice,
        Replicator,
        Tally,
        global_batch_norm,
        run_script,
    )
    from .runtime.nonfinite import NonFiniteError
    from .runtime.preparation import prepared
    from .runtime.rehearsal import Rehearsal
    from .runtime.replica import replica_of
    from .strategies import (
        EASGD,
        ABTraining,
        DataParallel,
        Decentralized,
        EdgeGossip,
        Gossip,
        Hierarchical,
        Independent,
        Layer,
        LeaderSGD,
        LocalSGD,
        OuterSGD,
        PushSum,
        Unit,
        check_placed,
    )
    from .strategies.ab_training import LowRankLayer, load_low_rank, merged
    from .topologies import (
        ByHost,
        Complete,
        Edges,
        ErdosRenyi,
        Exponential,
        Graph,
        GroupsOf,
        Hypercube,
        OneGroup,
        RandomRegular,
        Ring,
        Star,
        Topology,
        Torus,
        Weights,
        all_ranks,
    )
    from .transports import InProcessCluster, LockStepError, Meter, PeerLostError, ProcessGroupTransport, Simulated

__all__ = [
    "DGC",
    "EACH",
    "EASGD",
    "EF21",
    "LGC",
    "ABTraining",
    "AdaComp",
    "AdaptiveRandom",
    "Average",
    "BinnedSign",
    "ByHost",
    "Cast",
    "Chain",
    "Choose",
    "Codec",
    "Complete",
    "Context",
    "ContractError",
    "DataParallel",
    "Decentralized",
    "Difference",
    "Dither",
    "EdgeGossip",
    "Edges",
    "Entropy",
    "ErdosRenyi",
    "ErrorFeedback",
    "Exponential",
    "ExponentialDither",
    "FittedFloat",
    "GenNorm",
    "GlobalBatchNorm",
    "Gossip",
    "Graph",
    "GroupsOf",
    "Handle",
    "Hierarchical",
    "Histogram",
    "Huffman",
    "Hypercube",
    "Identity",
    "InProcessCluster",
    "Independent",
    "LGCServer",
    "Laplace",
    "Layer",
    "Lazy",
    "LeaderSGD",
    "LeaderTopK",
    "Learning",
    "LocalSGD",
    "LockStepError",
    "LogicalDevice",
    "LowRankLayer",
    "Message",
    "Meter",
    "MiniFloat",
    "NaturalCompression",
    "NonFiniteError",
    "Nonzero",
    "Normal",
    "NotationError",
    "OneGroup",
    "OuterSGD",
    "Parameter",
    "PayloadError",
    "PeerLostError",
    "Peers",
    "PowerIteration",
    "PowerSGD",
    "ProcessGroupTransport",
    "PushSum",
    "Quantize",
    "RandomK",
    "RandomRegular",
    "Rans",
    "Reducer",
    "Rehearsal",
    "Replica",
    "Replicator",
    "Reply",
    "Ring",
    "Round",
    "Server",
    "Sharded",
    "Shrink",
    "Sign",
    "Simulated",
    "SparseSign",
    "Star",
    "Strategy",
    "Tally",
    "Ternary",
    "TopK",
    "Topology",
    "Torus",
    "Unit",
    "WarmUp",
    "Weights",
    "When",
    "__version__",
    "all_ranks",
    "attach",
    "check_momentum",
    "check_placed",
    "dedicated_servers",
    "distributions",
    "gathered",
    "global_batch_norm",
    "load_low_rank",
    "lockstep",
    "materialize",
    "merged",
    "methods",
    "parse",
    "parts_of",
    "prepared",
    "replica_of",
    "run_script",
    "served",
    "servers",
    "settled",
    "sharded",
    "strategy_of",
]

# The module of each public name, as in the imports above, which only type checkers read.
_NAMES = {
    "attach": (
        "attach",
        "check_momentum",
    ),
    "codecs": (
        "AdaptiveRandom",
        "BinnedSign",
        "Cast",
        "Chain",
        "Dither",
        "Entropy",
        "ExponentialDither",
        "Identity",
        "MiniFloat",
        "NaturalCompression",
        "Nonzero",
        "Quantize",
        "RandomK",
        "Round",
        "Shrink",
        "Sign",
        "SparseSign",
        "Ternary",
        "TopK",
    ),
    "core": (
        "EACH",
        "Codec",
        "Message",
        "Parameter",
        "PayloadError",
        "Peers",
        "Reducer",
        "Replica",
        "Reply",
        "Strategy",
        "lockstep",
    ),
    "core.described": ("parts_of",),
    "core.lazy": (
        "Lazy",
        "materialize",
    ),
    "core.outcome": ("Learning",),
    "entropy": (
        "GenNorm",
        "Histogram",
        "Huffman",
        "Laplace",
        "Normal",
        "Rans",
    ),
    "handle": ("Handle",),
    "methods": (
        "gathered",
        "served",
        "settled",
        "sharded",
        "strategy_of",
    ),
    "notation": (
        "NotationError",
        "parse",
    ),
    "reducers": (
        "DGC",
        "EF21",
        "LGC",
        "AdaComp",
        "Average",
        "Choose",
        "Difference",
        "ErrorFeedback",
        "FittedFloat",
        "LeaderTopK",
        "LGCServer",
        "PowerIteration",
        "PowerSGD",
        "Server",
        "Sharded",
        "WarmUp",
        "When",
        "dedicated_servers",
        "servers",
    ),
    "replicator": (
        "Context",
        "ContractError",
        "GlobalBatchNorm",
        "LogicalDevice",
        "Replicator",
        "Tally",
        "global_batch_norm",
        "run_script",
    ),
    "runtime.nonfinite": ("NonFiniteError",),
    "runtime.preparation": ("prepared",),
    "runtime.rehearsal": ("Rehearsal",),
    "runtime.replica": ("replica_of",),
    "strategies": (
        "EASGD",
        "ABTraining",
        "DataParallel",
        "Decentralized",
        "EdgeGossip",
        "Gossip",
        "Hierarchical",
        "Independent",
        "Layer",
        "LeaderSGD",
        "LocalSGD",
        "OuterSGD",
        "PushSum",
        "Unit",
        "check_placed",
    ),
    "strategies.ab_training": (
        "LowRankLayer",
        "load_low_rank",
        "merged",
    ),
    "topologies": (
        "ByHost",
        "Complete",
        "Edges",
        "ErdosRenyi",
        "Exponential",
        "Graph",
        "GroupsOf",
        "Hypercube",
        "OneGroup",
        "RandomRegular",
        "Ring",
        "Star",
        "Topology",
        "Torus",
        "Weights",
        "all_ranks",
    ),
    "transports": (
        "InProcessCluster",
        "LockStepError",
        "Meter",
        "PeerLostError",
        "ProcessGroupTransport",
        "Simulated",
    ),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}
_SUBMODULES = (
    "codecs",
    "core",
    "distributions",
    "entropy",
    "handle",
    "kernels",
    "methods",
    "notation",
    "reducers",
    "replicator",
    "runtime",
    "strategies",
    "topologies",
    "transports",
    "wire",
)


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        value = getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
    elif name in _SUBMODULES:
        value = import_module(f".{name}", __name__)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    dunder = {name for name in globals() if name.startswith("__")}
    return sorted({*dunder - {"__getattr__", "__dir__"}, *__all__, *_SUBMODULES, "version"})


class _Package(ModuleType):
    """The package: `thinwire.attach` is the function, although a submodule has the same name."""

    def __setattr__(self, name: str, value: object) -> None:
        # The import system binds a submodule to its package once it is loaded.
        if name == "attach" and isinstance(value, ModuleType):
            value = value.attach
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
