"""Layers whose weight is either one full-rank tensor or a product of two factors.

The weight is empty while the layer is factored. The `Parameter` objects stay the same, so the
optimizer keeps them, and skips those that have no gradient.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from ...kernels.low_rank_product import aligned

A, B = "factor_a", "factor_b"


def put(p: nn.Parameter, data: Tensor) -> None:
    """Replace a parameter's data; the shape may change.

    The dtype is changed in between, so that autograd makes a new gradient accumulator: the old one, which a live graph
    may still hold, expects gradients of the old shape.
    """
    other = torch.float32 if p.dtype == torch.float16 else torch.float16
    p.grad = None
    p.data = torch.empty(0, dtype=other, device=p.device)
    p.data = data


class Factored:
    """Mixin of factored layers. It comes before torch's class of the layer in the bases."""

    plain: ClassVar[type[nn.Module]]  # torch's class of the layer
    kind: ClassVar[str] = "dense"
    weight_name: ClassVar[str] = "weight"  # name of the parameter that may be factored
    full_shape: torch.Size
    _parameters: dict[str, nn.Parameter | None]

    @property
    def factors(self) -> tuple[Tensor, Tensor] | None:
        """The factors, of shapes (rows, rank) and (rank, columns); None while the weight is full-rank."""
        a, b = self._parameters[A], self._parameters[B]
        assert a is not None
        assert b is not None
        return None if self._stored_weight().numel() else (a, b)

    def matrix(self) -> Tensor:
        """The weight as a matrix: first dimension by all others."""
        factors = self.factors
        return self._stored_weight().flatten(1) if factors is None else aligned(factors[0]) @ aligned(factors[1])

    def _stored_weight(self) -> Tensor:
        """The full-rank weight; empty while the layer is factored."""
        weight = self._parameters[self.weight_name]
        assert weight is not None
        return weight

    def _current(self) -> Tensor:
        """The full weight; the product of the factors if the layer is factored."""
        return self._stored_weight() if self.factors is None else self.matrix().view(self.full_shape)

    def _use_factors(self, samples: int) -> bool:
        """Whether multiplying by both factors is cheaper than computing the full weight and multiplying by it."""
        factors = self.factors
        if factors is None:
            return False
        (rows, rank), columns = factors[0].shape, factors[1].shape[1]
        return samples * rank * (rows + columns) <= rows * columns * (samples + rank)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Take the saved shapes, which determine whether the layer is factored, and its rank."""
        if not any(prefix + name in state_dict for name in (A, B)):  # saved from a model without factors
            for name in (A, B):
                state_dict[prefix + name] = self._stored_weight().new_empty(0)
        for name in (self.weight_name, A, B):
            mine, saved = self._parameters[name], state_dict.get(prefix + name)
            if mine is None or not isinstance(saved, Tensor) or saved.shape == mine.shape:
                continue
            if self._allows_shape(name, saved.shape):
                put(mine, mine.new_empty(saved.shape))
        super()._load_from_state_dict(state_dict, prefix, *args)  # type: ignore[misc]  # torch's class has it

    def _allows_shape(self, name: str, shape: torch.Size) -> bool:
        rows, columns = self.full_shape[0], self.full_shape[1:].numel()
        if name == self.weight_name:
            return shape in (self.full_shape, torch.Size([0]))
        outer = shape[0] == rows if name == A else shape[-1] == columns
        return shape == torch.Size([0]) or (len(shape) == 2 and outer)


class FactoredLinear(Factored, nn.Linear):
    plain = nn.Linear

    @property
    def weight(self) -> Tensor:  # type: ignore[override]  # a parameter in torch's class
        return self._current()

    def forward(self, input: Tensor) -> Tensor:
        factors = self.factors
        if factors is None or not self._use_factors(input.shape[:-1].numel()):
            return functional.linear(input, self._current(), self.bias)
        a, b = factors
        return functional.linear(functional.linear(input, b), a, self.bias)


class FactoredProjection(FactoredLinear, NonDynamicallyQuantizableLinear):
    """The output projection of torch's attention, which reads its weight instead of calling it."""

    plain, kind = NonDynamicallyQuantizableLinear, "attention"


class _FactoredConv(Factored):
    kind = "conv"
    groups: int

    @property
    def weight(self) -> Tensor:
        return self._current()

    def forward(self, input: Tensor) -> Tensor:
        factors = self.factors
        samples = input.numel() // self.full_shape[1]  # about the number of output positions, strides ignored
        if factors is None or self.groups > 1 or not self._use_factors(samples):
            return self._conv_forward(input, self._current(), self.bias)  # type: ignore[attr-defined,no-any-return]
        a, b = factors
        rank = b.shape[0]
        inner = self._conv_forward(input, b.view(rank, *self.full_shape[1:]), None)  # type: ignore[attr-defined]
        return self._pointwise(inner, a.view(*a.shape, *[1] * (len(self.full_shape) - 2)), self.bias)  # type: ignore[attr-defined,no-any-return]


class FactoredConv1d(_FactoredConv, nn.Conv1d):  # type: ignore[override]  # a parameter in torch's class
    plain = nn.Conv1d
    _pointwise = staticmethod(functional.conv1d)


class FactoredConv2d(_FactoredConv, nn.Conv2d):  # type: ignore[override]
    plain = nn.Conv2d
    _pointwise = staticmethod(functional.conv2d)


class FactoredConv3d(_FactoredConv, nn.Conv3d):  # type: ignore[override]
    plain = nn.Conv3d
    _pointwise = staticmethod(functional.conv3d)


class FactoredEmbedding(Factored, nn.Embedding):
    plain, kind = nn.Embedding, "embedding"

    @property
    def weight(self) -> Tensor:  # type: ignore[override]  # a parameter in torch's class
        return self._current()

    def forward(self, input: Tensor) -> Tensor:
        factors = self.factors
        table = self._stored_weight() if factors is None else factors[0]
        found = functional.embedding(input, table, self.padding_idx, None, 2.0, self.scale_grad_by_freq)
        return found if factors is None else found @ factors[1]


class FactoredAttention(Factored, nn.MultiheadAttention):
    """Attention whose three input projections are one factored matrix."""

    plain, kind = nn.MultiheadAttention, "attention"
    weight_name = "in_proj_weight"

    @property
    def in_proj_weight(self) -> Tensor:  # type: ignore[override]  # a parameter in torch's class
        return self._current()


FACTORED: dict[type[nn.Module], type[Factored]] = {
    kind.plain: kind
    for kind in (
        FactoredLinear,
        FactoredProjection,
        FactoredConv1d,
        FactoredConv2d,
        FactoredConv3d,
        FactoredEmbedding,
        FactoredAttention,
    )
}


def can_be_factored(layer: nn.Module) -> bool:
    """Whether a layer has a supported class and a weight that can be factored."""
    kind = FACTORED.get(type(layer))
    if kind is None or (isinstance(layer, nn.Embedding) and (layer.max_norm is not None or layer.sparse)):
        return False
    weight = layer._parameters.get(kind.weight_name)
    return weight is not None and weight.requires_grad and weight.dim() > 1 and min(weight.flatten(1).shape) > 1
