"""Builds a `Replica`, which strategies work on, from a module."""

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
    """The trainable parameters of a module (or those of them in `only`), by name, with the kinds of their layers.

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
                "FSDP shards a model's parameters over the ranks; thinwire needs a full replica on each rank"
            )
        for name, p in layer.named_parameters(recurse=False):
            full_name = _clean(f"{prefix}.{name}" if prefix else name)
            if p.requires_grad and (wanted is None or id(p) in wanted) and id(p) not in seen:
                seen.add(id(p))
                _check(full_name, p, layer)
                parameters[full_name] = local(p)
                kind, sharded = _kind(layer, prefix, module), is_dtensor(p) and _is_sharded(p)
                descriptions[full_name] = Parameter(full_name, kind, outline(local(p)), sharded=sharded)
                if is_dtensor(p):
                    dtensors[full_name] = p
    if not parameters:
        raise ValueError("the model has no trainable parameters (none has requires_grad=True)")
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
    """This rank's part of a DTensor, in the same memory; any other tensor as it is."""
    part: Tensor = x.detach().to_local() if is_dtensor(x) else x
    return part


def parameters_of(replica: Replica) -> list[Parameter]:
    """The description of each parameter from which reducers specialize."""
    ranks = tuple(range(replica.size))
    descriptions = replica.descriptions
    return [descriptions[name]._replace(ranks=ranks, like=outline(p)) for name, p in replica.parameters.items()]


def _clean(name: str) -> str:
    # torch.compile adds this prefix; a checkpoint must not depend on whether a model was compiled.
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
