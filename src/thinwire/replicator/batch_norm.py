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
    """Normalizes by the mean and the variance of what all replicas have, however many examples each of them has.

    In training mode all replicas call it together. In eval mode it is torch's, and nothing is exchanged.
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
        self._link = _Link(context)

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input)
        self._check_input_dim(input)
        found = moments_of(input.detach()).of_all(self._link.context)
        if found.count == 1:
            raise ValueError(
                "Expected more than 1 value per channel when training, and all replicas together have 1; "
                f"the input size here is {list(input.shape)}"
            )
        if found.count and self.track_running_stats:
            self._track(found)
        scale = (found.squares / found.count + self.eps).rsqrt()
        made: Tensor = Normalized.apply(  # type: ignore[no-untyped-call]  # torch leaves it untyped
            input, self.weight, self.bias, found.mean, scale, found.count, self._link.context
        )
        return made

    def _track(self, found: Moments) -> None:
        factor = self.momentum or 0.0
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # a plain mean of all batches
                factor = 1 / self.num_batches_tracked.item()
        unbiased = found.squares / (found.count - 1)
        for running, now in ((self.running_mean, found.mean), (self.running_var, unbiased)):
            if running is not None:
                running.mul_(1 - factor).add_(now.to(running), alpha=factor)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2 or input.shape[1] != self.num_features:
            raise ValueError(f"expected {self.num_features} channels along the second axis, got {list(input.shape)}")


def global_batch_norm(model: nn.Module, context: Context) -> nn.Module:
    """The model with a `GlobalBatchNorm` in place of every batch norm; parameters and buffers stay the same objects.

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
    norms = {layer: _global(layer, context) for layer in model.modules() if isinstance(layer, _BatchNorm)}
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):  # a layer that is used twice has both names here
            if isinstance(child, _BatchNorm):
                parent.add_module(name, norms[child])
    return norms[model] if isinstance(model, _BatchNorm) else model


def _global(layer: _BatchNorm, context: Context) -> GlobalBatchNorm:
    if isinstance(layer, LazyModuleMixin):
        raise ValueError("a lazy batch norm does not know its channels yet: give the model a batch first")
    made = GlobalBatchNorm(
        layer.num_features, context, layer.eps, layer.momentum, layer.affine, layer.track_running_stats, "meta"
    )
    made.weight, made.bias = layer.weight, layer.bias
    made.running_mean, made.running_var = layer.running_mean, layer.running_var
    made.num_batches_tracked = layer.num_batches_tracked
    made.training = layer.training
    return made


class _Link:
    """The way to the other replicas, which copies of a layer have in common."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def __deepcopy__(self, memo: Any) -> "_Link":
        return self
