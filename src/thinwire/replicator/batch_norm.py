"""Batch normalization over the batches of all replicas."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.lazy import LazyModuleMixin

from .context import Context
from .normalization import Normalized, moments_of
from .running_moments import Moments


class GlobalBatchNorm(_BatchNorm):
    """Synchronized batch norm: normalizes by the mean and variance over the examples of all replicas.

    Replicas may have different numbers of examples. In training mode all replicas must call it together.
    In eval mode it behaves as torch's and exchanges nothing.
    """

    def __init__(
        self,
        num_features: int,
        context: Context,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype)
        self._shared = _SharedContext(context)

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input)
        self._check_input_dim(input)
        moments = moments_of(input.detach()).over_replicas(self._shared.context)
        if moments.count == 1:
            raise ValueError(
                "Expected more than 1 value per channel when training, but all replicas together have 1; "
                f"the input size here is {list(input.shape)}"
            )
        if moments.count and self.track_running_stats:
            self._track(moments)
        scale = (moments.squares / moments.count + self.eps).rsqrt()
        output: Tensor = Normalized.apply(  # type: ignore[no-untyped-call]  # untyped in torch
            input, self.weight, self.bias, moments.mean, scale, moments.count, self._shared.context
        )
        return output

    def _track(self, moments: Moments) -> None:
        factor = self.momentum or 0.0
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # cumulative average over all batches
                factor = 1 / self.num_batches_tracked.item()
        unbiased = moments.squares / (moments.count - 1)
        for running, new in ((self.running_mean, moments.mean), (self.running_var, unbiased)):
            if running is not None:
                running.mul_(1 - factor).add_(new.to(running), alpha=factor)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2 or input.shape[1] != self.num_features:
            raise ValueError(f"expected {self.num_features} channels along the second axis, got {list(input.shape)}")


def global_batch_norm(model: nn.Module, context: Context) -> nn.Module:
    """Replace every batch norm of the model by a `GlobalBatchNorm` with the same parameter and buffer objects.

    Examples:
        >>> import torch
        >>> import thinwire
        >>> from thinwire.simulate import InProcessCluster
        >>> def normalized():
        ...     repl = thinwire.Replicator("dense")
        ...     model = thinwire.global_batch_norm(torch.nn.BatchNorm1d(1), repl.context)
        ...     return model(torch.full((2, 1), float(repl.rank))).flatten().tolist()
        >>> [[round(value, 2) for value in values] for values in InProcessCluster(2).run(normalized)]
        [[-1.0, -1.0], [1.0, 1.0]]
    """
    norms = {layer: _converted(layer, context) for layer in model.modules() if isinstance(layer, _BatchNorm)}
    for parent in list(model.modules()):
        # named_children() would list a layer that is used twice only once.
        for name, child in list(parent._modules.items()):
            if isinstance(child, _BatchNorm):
                parent.add_module(name, norms[child])
    return norms[model] if isinstance(model, _BatchNorm) else model


def _converted(layer: _BatchNorm, context: Context) -> GlobalBatchNorm:
    if isinstance(layer, LazyModuleMixin):
        raise ValueError("a lazy batch norm has no number of channels yet: run a batch through the model first")
    converted = GlobalBatchNorm(
        layer.num_features, context, layer.eps, layer.momentum, layer.affine, layer.track_running_stats, "meta"
    )
    converted.weight, converted.bias = layer.weight, layer.bias
    converted.running_mean, converted.running_var = layer.running_mean, layer.running_var
    converted.num_batches_tracked = layer.num_batches_tracked
    converted.training = layer.training
    return converted


class _SharedContext:
    """Holds the context, so that deep copies of a layer share it."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def __deepcopy__(self, memo: Any) -> "_SharedContext":
        return self
