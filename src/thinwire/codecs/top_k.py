from dataclasses import dataclass

from torch import Tensor

from ..core.bounds import Bounds, projection
from ..core.lazy import DeferredDifference, Lazy
from ..kernels import selection as top_k
from ..kernels.sparse_tensor import SparseTensor
from .sparsifier import AtPositions, check_ratio, kept


@dataclass(frozen=True, repr=False)
class TopK(AtPositions):
    """Top-k sparsification: keeps the entries of largest magnitude (of equal ones, the first), with their positions.

    It encodes a tensor to the kept values, their positions in the flattened tensor (as Elias-Fano code, not as an index
    tensor) and the tensor's outline, a meta tensor. Use it within `ErrorFeedback`.

    Examples:
        >>> import torch
        >>> from thinwire import TopK
        >>> x = torch.tensor([0.1, -3.0, 0.5, 2.0])
        >>> codec = TopK(0.5)
        >>> values, positions, outline = codec.encode((x,), seed=0)
        >>> values.tolist(), positions.nbytes
        ([-3.0, 2.0], 1)
        >>> codec.decode((values, positions, outline), seed=0)[0].tolist()
        [0.0, -3.0, 0.0, 2.0]
    """

    ratio: float  # share of the entries that is kept, at least one; lower: fewer bytes

    def __post_init__(self) -> None:
        check_ratio("TopK", self.ratio)

    def entries(self, size: int) -> int:
        return kept(self.ratio, size)

    def bounds(self, size: int) -> Bounds:
        return projection(size / self.entries(size))

    def keep(self, x: Tensor) -> SparseTensor:
        return top_k.largest(x, kept(self.ratio, x.numel()))

    def is_kept(self, x: SparseTensor) -> bool:
        return x.where.numel() == kept(self.ratio, x.shape.numel())

    def pick(self, x: Tensor, rest: DeferredDifference, decay: float, out: Tensor) -> Tensor | Lazy:
        return top_k.largest_of_sum(x, rest, decay, out, kept(self.ratio, x.numel()))
