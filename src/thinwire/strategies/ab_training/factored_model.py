"""A user's model whose layers are factored and made whole again while it is trained."""

import warnings
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from .factored_layers import FACTORED, A, B, Factored, can_be, put
from .optimizer_state import carry, forget

MOMENTS = ("carry", "reset")
LOWEST = 1e-5  # the learning rate that a slowed down one climbs from


class LowRankLayer(NamedTuple):
    """A layer that is factored at times, as a matrix."""

    kind: str  # conv, dense, embedding or attention
    rows: int
    columns: int
    rank: int | None  # of its factors; None while it is whole


class Bench:
    """One layer, and its three parameters."""

    def __init__(self, name: str, layer: nn.Module, optimizer: Optimizer) -> None:
        assert isinstance(layer, Factored)
        name = name.replace("_orig_mod.", "")  # as replicas name what torch.compile has wrapped
        self.name, self.layer, self.optimizer = name, layer, optimizer
        self.weight, self.a, self.b = (self._parameter(which) for which in (layer.whole, A, B))
        parts = {"weight": layer.whole, "a": A, "b": B}
        self.names = {which: f"{name}.{part}" if name else part for which, part in parts.items()}
        rows, columns = layer.full_shape[0], layer.full_shape[1:].numel()
        self.shape = (rows, columns)

    def _parameter(self, which: str) -> nn.Parameter:
        found = self.layer._parameters[which]
        assert found is not None
        return found

    @property
    def rank(self) -> int | None:
        """Of the factors; None while the layer is whole."""
        return None if self.weight.numel() else self.a.shape[1]

    def matrix(self) -> Tensor:
        return self.layer.matrix().detach()

    def decomposed(self, cutoff: float) -> tuple[Tensor, Tensor]:
        """Two factors, without the directions whose singular values are at most so much of the largest."""
        return decomposed(self.matrix(), cutoff)

    def split(self, a: Tensor, b: Tensor, moments: str) -> None:
        """Go over to factors. What the optimizer knows of the weight waits for it, unless it is to be forgotten."""
        was = self.weight.shape
        put(self.a, a.contiguous())
        put(self.b, b.contiguous())
        if moments == "carry":
            carry(self.optimizer, self.weight, was, self.a, None, b.T)
            carry(self.optimizer, self.weight, was, self.b, a.T, None)
        else:
            forget(self.optimizer, self.weight)
        self._put_away(self.weight)

    def merge(self, matrix: Tensor) -> None:
        """Go back to one weight."""
        put(self.weight, matrix.reshape(self.layer.full_shape).contiguous())
        forget(self.optimizer, self.a, self.b)
        self._put_away(self.a, self.b)

    def train(self, *which: str) -> None:
        """Let these of its parameters have gradients: "weight", "a", "b"."""
        for name in ("weight", "a", "b"):
            p: nn.Parameter = getattr(self, name)
            p.requires_grad_(name in which)
            if name not in which:
                p.grad = None
                if name != "weight":
                    forget(self.optimizer, p)

    def _put_away(self, *parameters: nn.Parameter) -> None:
        for p in parameters:
            put(p, p.new_empty(0))


def decomposed(matrix: Tensor, cutoff: float = 0.0, rank: int | None = None) -> tuple[Tensor, Tensor]:
    """U sqrt(S) and sqrt(S) V' of those directions whose singular values are above so much of the largest.

    What is no more than round-off is never kept; and if a rank is given, as many are.
    """
    u, s, v = torch.linalg.svd(matrix.double(), full_matrices=False)
    least = max(cutoff, torch.finfo(matrix.dtype).eps)
    rank = max(1, int((s > least * s[0]).sum())) if rank is None else rank
    if not s[0]:  # factors that are both zero would have no gradients, and stay so
        return torch.zeros_like(matrix[:, :rank]), v[:rank].to(matrix.dtype)
    root = s[:rank].sqrt()
    return (u[:, :rank] * root).to(matrix.dtype), (root[:, None] * v[:rank]).to(matrix.dtype)


class FactoredModel:
    """The layers of a model that may be factored, in order."""

    def __init__(self, model: nn.Module, optimizer: Optimizer, keep: Sequence[str] = (), ends: bool = True) -> None:
        self.model, self.optimizer = model, optimizer
        self._rates: list[Any] | None = None  # the learning rates, while they are lowered
        names = {layer: name for name, layer in model.named_modules() if can_be(layer)}
        trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
        shared = _shared(model)
        layers = [
            layer
            for layer in names
            if id(layer._parameters[FACTORED[type(layer)].whole]) in trained
            and id(layer._parameters[FACTORED[type(layer)].whole]) not in shared
        ]
        for pattern in keep:
            if not any(fnmatchcase(names[layer], pattern) for layer in layers):
                warnings.warn(f"{pattern!r} of keep matches no layer that could be factored", stacklevel=5)
        layers = layers[1:-1] if ends else layers
        kept = [layer for layer in layers if not any(fnmatchcase(names[layer], pattern) for pattern in keep)]
        if not kept:
            raise ValueError(
                "the model has no layer whose weight could be factored: "
                + ("besides the first and the last, " if ends else "")
                + "it would have to be a Linear, Conv, Embedding or MultiheadAttention, trained by this optimizer"
            )
        self.benches = [self._begin(names[layer], layer) for layer in kept]

    def _begin(self, name: str, layer: nn.Module) -> Bench:
        """Make a layer one that may be factored; its parameters stay where the optimizer has them."""
        kind = FACTORED[type(layer)]
        whole = layer._parameters[kind.whole]
        assert whole is not None
        layer.full_shape = whole.shape  # type: ignore[assignment]  # torch takes attributes for tensors and modules
        for which in (A, B):
            layer.register_parameter(which, nn.Parameter(whole.new_empty(0), requires_grad=False))
        layer.__class__ = kind  # type: ignore[assignment]  # a subclass of what it was, by the table
        bench = Bench(name, layer, self.optimizer)
        for group in self.optimizer.param_groups:
            if any(p is whole for p in group["params"]):
                group["params"] += [bench.a, bench.b]
        return bench

    def moments(self, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Copies of what the optimizer remembers of these, of their shapes; zeros if it does not know one yet."""
        known = self.optimizer.state
        states = [(p, kind, x) for p, state in known.items() for kind, x in state.items()]
        kinds = sorted({kind for p, kind, x in states if isinstance(x, Tensor) and x.dim() and x.shape == p.shape})
        found = {}
        for name, p in parameters.items():
            for kind in kinds:
                there = known.get(p, {}).get(kind)
                found[f"{kind} of {name}"] = torch.zeros_like(p) if there is None else there.clone()
        return found

    def remember(self, parameters: Mapping[str, Tensor], moments: Mapping[str, Tensor]) -> None:
        """Have the optimizer go on from these, where it knows a parameter."""
        for name, p in parameters.items():
            for kind, x in self.optimizer.state.get(p, {}).items():
                if f"{kind} of {name}" in moments:
                    x.copy_(moments[f"{kind} of {name}"])

    def factored(self) -> dict[str, LowRankLayer]:
        """What its layers are at the moment."""
        return {bench.name: LowRankLayer(bench.layer.kind, *bench.shape, bench.rank) for bench in self.benches}

    def slow_down(self, part: float) -> None:
        """Let the next update have a part of the learning rate; what a schedule sees is given back after it."""
        if self._rates is not None:
            for group, rate in zip(self.optimizer.param_groups, self._rates, strict=True):
                group["lr"] = rate
            self._rates = None
        if part < 1:
            self._rates = [group["lr"] for group in self.optimizer.param_groups]
            for group in self.optimizer.param_groups:
                group["lr"] = group["lr"] * part if group["lr"] < LOWEST else LOWEST + (group["lr"] - LOWEST) * part

    def end(self) -> None:
        """Give the model back as it was, its layers whole."""
        for bench in self.benches:
            if bench.rank is not None:
                bench.merge(bench.matrix())
            bench.train("weight")
            plain(bench.layer)
            for group in self.optimizer.param_groups:
                group["params"] = [p for p in group["params"] if p is not bench.a and p is not bench.b]


def plain(layer: Factored) -> None:
    """Make a whole layer of torch's own class again."""
    assert layer.factors is None
    for which in (A, B):
        del layer._parameters[which]
    del layer.full_shape
    layer.__class__ = layer.plain  # type: ignore[assignment]


def _shared(model: nn.Module) -> set[int]:
    """Parameters that several layers have: a factored one would not be the other's any more."""
    seen: set[int] = set()
    twice: set[int] = set()
    for layer in model.modules():
        for p in layer._parameters.values():
            if p is not None:
                (twice if id(p) in seen else seen).add(id(p))
    return twice
