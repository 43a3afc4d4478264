"""Copies of a factored model, made of torch's own layers."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from .factored_layers import Factored
from .factored_model import decomposed, plain

SUPPORTED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Embedding)


@torch.no_grad()
def merged(model: nn.Module, weights: Mapping[str, Tensor] | None = None) -> nn.Module:
    """A copy with one weight per layer: the product of its factors, or the one given by name."""
    copy = deepcopy(model)
    for name, layer in copy.named_modules():
        if isinstance(layer, Factored):
            weight = layer._parameters[layer.weight_name]
            assert weight is not None
            given = (weights or {}).get(f"{name}.{layer.weight_name}" if name else layer.weight_name)
            matrix = layer.matrix() if given is None else given
            weight.data = matrix.reshape(layer.full_shape).to(weight.dtype, copy=True)
            weight.requires_grad_(True)
            plain(layer)
    return copy


def thin(model: nn.Module, ranks: Mapping[str, int]) -> nn.Module:
    """A copy in which each of these layers is a sequence of two low-rank ones: its best approximation of this rank."""
    copy = deepcopy(model)
    for name, rank in ranks.items():
        parent, _, last = name.rpartition(".")
        setattr(copy.get_submodule(parent), last, _low_rank_pair(copy.get_submodule(name), rank))
    return copy


def can_be_low_rank(layer: nn.Module) -> bool:
    """Whether a layer can be replaced by two low-rank ones.

    Attention cannot, as it reads its projections' weights instead of calling them; nor can grouped convolutions.
    """
    return type(layer) in SUPPORTED and getattr(layer, "groups", 1) == 1


@torch.no_grad()
def _low_rank_pair(layer: nn.Module, rank: int) -> nn.Sequential:
    weight = layer.get_parameter("weight")
    a, b = decomposed(weight.detach().flatten(1), rank=rank)
    factory_kwargs: dict[str, Any] = {"device": weight.device, "dtype": weight.dtype}
    first: nn.Module
    second: nn.Module
    if isinstance(layer, nn.Embedding):
        first = nn.Embedding(layer.num_embeddings, rank, layer.padding_idx, **factory_kwargs)
        second = nn.Linear(rank, layer.embedding_dim, bias=False, **factory_kwargs)
        first.weight.copy_(a)
        second.weight.copy_(b.T)
        return nn.Sequential(first, second)
    bias = layer.get_parameter("bias") if getattr(layer, "bias", None) is not None else None
    if isinstance(layer, _ConvNd):
        kind: Any = type(layer)
        first = kind(
            layer.in_channels,
            rank,
            layer.kernel_size,
            layer.stride,
            layer.padding,
            layer.dilation,
            bias=False,
            padding_mode=layer.padding_mode,
            **factory_kwargs,
        )
        second = kind(rank, layer.out_channels, 1, bias=bias is not None, **factory_kwargs)
    else:
        assert isinstance(layer, nn.Linear)
        first = nn.Linear(layer.in_features, rank, bias=False, **factory_kwargs)
        second = nn.Linear(rank, layer.out_features, bias=bias is not None, **factory_kwargs)
    first.get_parameter("weight").copy_(b.view(rank, *weight.shape[1:]))
    second.get_parameter("weight").copy_(a.view_as(second.get_parameter("weight")))
    if bias is not None:
        second.get_parameter("bias").copy_(bias)
    return nn.Sequential(first, second)
