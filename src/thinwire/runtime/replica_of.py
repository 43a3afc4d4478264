"""A module, as strategies see it."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from ..core import Parameter, Replica
from ..core.lazy import outline

TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
SHARDED = ("FullyShardedDataParallel", "FSDPModule")
KINDS: tuple[tuple[str, tuple[type[nn.Module], ...]], ...] = (
    ("conv", (_ConvNd,)),
    ("recurrent", (nn.RNNBase, nn.RNNCellBase)),
    ("embedding", (nn.Embedding, nn.EmbeddingBag)),
    ("norm", (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)),
    ("dense", (nn.Linear, nn.Bilinear)),
)


def replica_of(
    module: nn.Module,
    only: Iterable[Tensor] | None = None,
    rank: int = 0,
    size: int = 1,
    hosts: tuple[str, ...] = (),
) -> Replica:
    """The parameters of a module that are trained (or those of them in `only`), by name, with their kinds of layer.

    Examples:
        >>> import torch
        >>> from thinwire.simulate import replica_of
        >>> replica = replica_of(torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8)))
        >>> replica.kinds
        {'0.weight': 'conv', '0.bias': 'conv', '1.weight': 'norm', '1.bias': 'norm'}
    """
    wanted = None if only is None else {id(p) for p in only}
    parameters: dict[str, Tensor] = {}
    descriptions: dict[str, Parameter] = {}
    dtensors: dict[str, Any] = {}
    seen: set[int] = set()  # a tied weight counts once
    for prefix, layer in module.named_modules():
        if any(base.__name__ in SHARDED for base in type(layer).__mro__):
            raise ValueError(
                "a model sharded by FSDP keeps other parameters on each rank; thinwire takes whole replicas"
            )
        for name, p in layer.named_parameters(recurse=False):
            full = _clean(f"{prefix}.{name}" if prefix else name)
            if p.requires_grad and (wanted is None or id(p) in wanted) and id(p) not in seen:
                seen.add(id(p))
                _check(full, p, layer)
                parameters[full] = local(p)
                kind, sharded = _kind(layer, prefix, module), is_dtensor(p) and _is_sharded(p)
                descriptions[full] = Parameter(full, kind, outline(parameters[full]), sharded=sharded)
                if is_dtensor(p):
                    dtensors[full] = p
    if not parameters:
        raise ValueError("the model has no parameter that requires a gradient: there is nothing to talk about")
    matrices = [name for name, p in parameters.items() if p.dim() > 1]
    if len(matrices) > 1:
        for name, end in ((matrices[0], "first"), (matrices[-1], "last")):
            descriptions[name] = descriptions[name]._replace(end=end)
    return Replica(parameters, descriptions, rank, size, hosts, dtensors=dtensors)


def is_dtensor(x: Any) -> bool:
    """Whether it is one of torch's DTensors, of which each rank of a replica holds a part."""
    return hasattr(x, "to_local")


def _is_sharded(x: Any) -> bool:
    """Whether the ranks of a replica hold different parts of a DTensor."""
    return any(placement.is_shard() for placement in x.placements)


def local(x: Any) -> Tensor:
    """The part of a tensor that this rank holds, in the same memory."""
    mine: Tensor = x.detach().to_local() if is_dtensor(x) else x
    return mine


def parameters_of(replica: Replica) -> list[Parameter]:
    """What reducers may know of each parameter."""
    ranks = tuple(range(replica.size))
    return [replica.descriptions[name]._replace(ranks=ranks) for name in replica.parameters]


def _clean(name: str) -> str:
    # torch.compile adds this; a checkpoint must not depend on whether a model was compiled.
    return name.replace("_orig_mod.", "")


def _kind(layer: nn.Module, prefix: str, module: nn.Module) -> str:
    parent = module.get_submodule(prefix.rpartition(".")[0]) if prefix else module
    if isinstance(layer, nn.MultiheadAttention) or isinstance(parent, nn.MultiheadAttention):
        return "attention"
    return next((kind for kind, types in KINDS if isinstance(layer, types)), "other")


def _check(name: str, p: Tensor, layer: nn.Module) -> None:
    if p.dtype not in TYPES:
        raise ValueError(f"{name} is {p.dtype}; gradients must be real floating-point numbers")
    if getattr(layer, "sparse", False):
        raise ValueError(
            f"{name} has sparse gradients, which thinwire does not take: build its layer with sparse=False"
        )
