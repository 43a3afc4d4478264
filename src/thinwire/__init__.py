"""thinwire: communication-efficient distributed training for PyTorch.

Public names are imported on first use (PEP 562), so that `import thinwire` alone does not import torch.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from . import extend, inspect, simulate
    from .attach import attach
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
    from .core import PayloadError, Peers
    from .entropy import GenNorm, Histogram, Huffman, Laplace, Normal, Rans
    from .handle import Handle
    from .methods import METHODS, Method, gathered, notation_of, served, settled, sharded, strategy_of
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
    from .strategies import (
        EASGD,
        ABTraining,
        DataParallel,
        EdgeGossip,
        Gossip,
        Hierarchical,
        LeaderSGD,
        LocalSGD,
        OuterSGD,
        PushSum,
    )
    from .strategies.ab_training import LowRankLayer, load_low_rank, merged
    from .topologies import (
        ByHost,
        Complete,
        Edges,
        ErdosRenyi,
        Exponential,
        GroupsOf,
        Hypercube,
        OneGroup,
        RandomRegular,
        Ring,
        Star,
        Torus,
        Weights,
    )
    from .transports import PeerLostError

__all__ = [
    "DGC",
    "EASGD",
    "EF21",
    "LGC",
    "METHODS",
    "ABTraining",
    "AdaComp",
    "AdaptiveRandom",
    "Average",
    "BinnedSign",
    "ByHost",
    "Cast",
    "Chain",
    "Choose",
    "Complete",
    "Context",
    "ContractError",
    "DataParallel",
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
    "GroupsOf",
    "Handle",
    "Hierarchical",
    "Histogram",
    "Huffman",
    "Hypercube",
    "Identity",
    "LGCServer",
    "Laplace",
    "LeaderSGD",
    "LeaderTopK",
    "LocalSGD",
    "LogicalDevice",
    "LowRankLayer",
    "Method",
    "MiniFloat",
    "NaturalCompression",
    "NonFiniteError",
    "Nonzero",
    "Normal",
    "NotationError",
    "OneGroup",
    "OuterSGD",
    "PayloadError",
    "PeerLostError",
    "Peers",
    "PowerIteration",
    "PowerSGD",
    "PushSum",
    "Quantize",
    "RandomK",
    "RandomRegular",
    "Rans",
    "Replicator",
    "Ring",
    "Round",
    "Server",
    "Sharded",
    "Shrink",
    "Sign",
    "SparseSign",
    "Star",
    "Tally",
    "Ternary",
    "TopK",
    "Torus",
    "WarmUp",
    "Weights",
    "When",
    "__version__",
    "attach",
    "extend",
    "gathered",
    "global_batch_norm",
    "inspect",
    "load_low_rank",
    "merged",
    "notation_of",
    "parse",
    "run_script",
    "served",
    "settled",
    "sharded",
    "simulate",
    "strategy_of",
]

# Where each name is defined. Checked against the imports above by tests/test_layers.py.
_NAMES = {
    "attach": ("attach",),
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
    "core": ("PayloadError", "Peers"),
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
        "METHODS",
        "Method",
        "gathered",
        "notation_of",
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
    "strategies": (
        "EASGD",
        "ABTraining",
        "DataParallel",
        "EdgeGossip",
        "Gossip",
        "Hierarchical",
        "LeaderSGD",
        "LocalSGD",
        "OuterSGD",
        "PushSum",
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
        "GroupsOf",
        "Hypercube",
        "OneGroup",
        "RandomRegular",
        "Ring",
        "Star",
        "Torus",
        "Weights",
    ),
    "transports": ("PeerLostError",),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}
_SUBMODULES = (
    "codecs",
    "core",
    "distributions",
    "entropy",
    "extend",
    "handle",
    "inspect",
    "kernels",
    "methods",
    "notation",
    "reducers",
    "replicator",
    "runtime",
    "simulate",
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
