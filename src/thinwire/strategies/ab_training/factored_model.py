"""A user's model whose layers switch between full-rank and factored during training."""

import warnings
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from .factored_layers import FACTORED, A, B, Factored, can_be_factored, put
from .optimizer_state import carry, forget

MOMENTS = ("carry", "reset")
LOWEST = 1e-5  # learning rate at the start of a warm-up


class LowRankLayer(NamedTuple):
    """A layer that can be factored, as a matrix."""

    kind: str  # conv, dense, embedding or attention
    rows: int
    columns: int
    rank: int | None  # of its factors; None while it is full-rank


class FactorableLayer:
    """A layer that can be factored, and its three parameters: weight, a, b."""

    def __init__(self, name: str, module: nn.Module, optimizer: Optimizer) -> None:
        assert isinstance(module, Factored)
        name = name.replace("_orig_mod.", "")  # the name without torch.compile's wrapper
        self.name, self.module, self.optimizer = name, module, optimizer
        self.weight, self.a, self.b = (self._parameter(which) for which in (module.weight_name, A, B))
        parts = {"weight": module.weight_name, "a": A, "b": B}
        self.names = {which: f"{name}.{part}" if name else part for which, part in parts.items()}
        rows, columns = module.full_shape[0], module.full_shape[1:].numel()
        self.shape = (rows, columns)

    def _parameter(self, which: str) -> nn.Parameter:
        found = self.module._parameters[which]
        assert found is not None
        return found

    @property
    def rank(self) -> int | None:
        """The rank of the factors; None while the layer is full-rank."""
        return None if self.weight.numel() else self.a.shape[1]

    def matrix(self) -> Tensor:
        return self.module.matrix().detach()

    def decomposed(self, cutoff: float) -> tuple[Tensor, Tensor]:
        """Two factors from a truncated SVD: singular values up to `cutoff` times the largest are dropped."""
        return decomposed(self.matrix(), cutoff)

    def split(self, a: Tensor, b: Tensor, moments: str) -> None:
        """Switch to factors. The optimizer's state of the weight is carried over to them, or dropped for "reset"."""
        shape = self.weight.shape
        put(self.a, a.contiguous())
        put(self.b, b.contiguous())
        if moments == "carry":
            carry(self.optimizer, self.weight, shape, self.a, None, b.T)
            carry(self.optimizer, self.weight, shape, self.b, a.T, None)
        else:
            forget(self.optimizer, self.weight)
        self._empty(self.weight)

    def merge(self, matrix: Tensor) -> None:
        """Switch back to one full-rank weight."""
        put(self.weight, matrix.reshape(self.module.full_shape).contiguous())
        forget(self.optimizer, self.a, self.b)
        self._empty(self.a, self.b)

    def train(self, *which: str) -> None:
        """Train only these of its parameters: "weight", "a", "b"."""
        for name in ("weight", "a", "b"):
            p: nn.Parameter = getattr(self, name)
            p.requires_grad_(name in which)
            if name not in which:
                p.grad = None
                if name != "weight":
                    forget(self.optimizer, p)

    def _empty(self, *parameters: nn.Parameter) -> None:
        for p in parameters:
            put(p, p.new_empty(0))


def decomposed(matrix: Tensor, cutoff: float = 0.0, rank: int | None = None) -> tuple[Tensor, Tensor]:
    """U sqrt(S) and sqrt(S) V' of the singular values above `cutoff` times the largest, or of the first `rank`.

    Without `rank`, singular values at the level of rounding errors are always dropped.
    """
    u, s, v = torch.linalg.svd(matrix.double(), full_matrices=False)
    least = max(cutoff, torch.finfo(matrix.dtype).eps)
    rank = max(1, int((s > least * s[0]).sum())) if rank is None else rank
    if not s[0]:  # if both factors were zero, their gradients would be zero too
        return torch.zeros_like(matrix[:, :rank]), v[:rank].to(matrix.dtype)
    root = s[:rank].sqrt()
    return (u[:, :rank] * root).to(matrix.dtype), (root[:, None] * v[:rank]).to(matrix.dtype)


class FactoredModel:
    """The layers of a model that can be factored, in order."""

    def __init__(self, model: nn.Module, optimizer: Optimizer, keep: Sequence[str] = (), ends: bool = True) -> None:
        self.model, self.optimizer = model, optimizer
        self._rates: list[Any] | None = None  # the optimizer's learning rates, while `scale_lr` lowers them
        names = {layer: name for name, layer in model.named_modules() if can_be_factored(layer)}
        trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
        shared = _shared(model)
        layers = [
            layer
            for layer in names
            if id(layer._parameters[FACTORED[type(layer)].weight_name]) in trained
            and id(layer._parameters[FACTORED[type(layer)].weight_name]) not in shared
        ]
        for pattern in keep:
            if not any(fnmatchcase(names[layer], pattern) for layer in layers):
                warnings.warn(f"keep={pattern!r} matches no layer that can be factored", stacklevel=5)
        layers = layers[1:-1] if ends else layers
        kept = [layer for layer in layers if not any(fnmatchcase(names[layer], pattern) for pattern in keep)]
        if not kept:
            raise ValueError(
                "the model has no layer whose weight can be factored: "
                + ("besides the first and the last, " if ends else "")
                + "it must be a Linear, Conv, Embedding or MultiheadAttention, trained by this optimizer"
            )
        self.factorable = [self._make_factorable(names[layer], layer) for layer in kept]

    def _make_factorable(self, name: str, layer: nn.Module) -> FactorableLayer:
        """Change a layer's class to its factored one; the optimizer keeps its parameters."""
        kind = FACTORED[type(layer)]
        weight = layer._parameters[kind.weight_name]
        assert weight is not None
        layer.full_shape = weight.shape  # type: ignore[assignment]  # torch types attributes as tensors or modules
        for which in (A, B):
            layer.register_parameter(which, nn.Parameter(weight.new_empty(0), requires_grad=False))
        layer.__class__ = kind  # type: ignore[assignment]  # a subclass of the old class
        entry = FactorableLayer(name, layer, self.optimizer)
        for group in self.optimizer.param_groups:
            if any(p is weight for p in group["params"]):
                group["params"] += [entry.a, entry.b]
        return entry

    def moments(self, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Copies of the optimizer's moments of these parameters; zeros if it has none yet."""
        state_of = self.optimizer.state
        states = [(p, kind, x) for p, state in state_of.items() for kind, x in state.items()]
        kinds = sorted({kind for p, kind, x in states if isinstance(x, Tensor) and x.dim() and x.shape == p.shape})
        found = {}
        for name, p in parameters.items():
            for kind in kinds:
                moment = state_of.get(p, {}).get(kind)
                found[f"{kind} of {name}"] = torch.zeros_like(p) if moment is None else moment.clone()
        return found

    def set_moments(self, parameters: Mapping[str, Tensor], moments: Mapping[str, Tensor]) -> None:
        """Write these moments into the optimizer's state, where it has them."""
        for name, p in parameters.items():
            for kind, x in self.optimizer.state.get(p, {}).items():
                if f"{kind} of {name}" in moments:
                    x.copy_(moments[f"{kind} of {name}"])

    def factored(self) -> dict[str, LowRankLayer]:
        """The current form of its layers, by name."""
        return {entry.name: LowRankLayer(entry.module.kind, *entry.shape, entry.rank) for entry in self.factorable}

    def scale_lr(self, factor: float) -> None:
        """Scale the learning rate of the next update; a factor of 1 restores it, for the scheduler."""
        if self._rates is not None:
            for group, rate in zip(self.optimizer.param_groups, self._rates, strict=True):
                group["lr"] = rate
            self._rates = None
        if factor < 1:
            self._rates = [group["lr"] for group in self.optimizer.param_groups]
            for group in self.optimizer.param_groups:
                group["lr"] = group["lr"] * factor if group["lr"] < LOWEST else LOWEST + (group["lr"] - LOWEST) * factor

    def end(self) -> None:
        """Restore the model: full-rank layers of torch's classes."""
        for entry in self.factorable:
            if entry.rank is not None:
                entry.merge(entry.matrix())
            entry.train("weight")
            plain(entry.module)
            for group in self.optimizer.param_groups:
                group["params"] = [p for p in group["params"] if p is not entry.a and p is not entry.b]


def plain(layer: Factored) -> None:
    """Restore torch's class of a full-rank layer."""
    assert layer.factors is None
    for which in (A, B):
        del layer._parameters[which]
    del layer.full_shape
    layer.__class__ = layer.plain  # type: ignore[assignment]


def _shared(model: nn.Module) -> set[int]:
    """The ids of parameters tied between layers: factoring one layer would untie them."""
    seen: set[int] = set()
    shared: set[int] = set()
    for layer in model.modules():
        for p in layer._parameters.values():
            if p is not None:
                (shared if id(p) in seen else seen).add(id(p))
    return shared
