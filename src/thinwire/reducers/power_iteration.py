from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ..codecs import Identity
from ..core import Codec, Conversation, Message, Parameter, Reducer, Reply
from ..core.lazy import DeferredDifference
from ..kernels.low_rank_product import LowRankProduct, dots, renewed, sums
from .average import STRIDE, Average
from .low_rank import as_matrix, check, first_factors, orthonormal, pays


class PowerState(NamedTuple):
    left: Tensor  # [rank, rows of the matrix]
    right: Tensor  # [rank, columns of the matrix]
    from_left: bool  # whether the next iteration starts from the left factor and updates the right, or the reverse
    seed: int


@dataclass(frozen=True, repr=False)
class PowerIteration(Reducer):
    """Low-rank compression by alternating power iteration: the one-factor-per-round form of PowerSGD.

    Each iteration sends one low-rank factor of the matrix, left and right in turn. Further iterations of a step
    approximate the residual of the earlier ones; the result is the sum of their products.
    """

    same_arithmetic: ClassVar[bool] = True
    randomized: ClassVar[bool] = True

    rank: int  # of the approximation; higher: smaller error, more bytes
    iterations: int = 1  # rounds per step; higher: smaller error, more bytes
    codec: Codec = Identity()  # for the factors
    least_ratio: float = 1.5

    def __post_init__(self) -> None:
        check("PowerIteration", self.rank, self.least_ratio, self.codec)
        if not (isinstance(self.iterations, int) and self.iterations >= 1):
            raise ValueError(f"PowerIteration takes 1 iteration or more, not {self.iterations!r}")

    @property
    def needs_shape(self) -> bool:
        return True

    @property
    def period(self) -> int:
        return 2  # the left and the right factor in turn

    def specialize(self, parameter: Parameter) -> Reducer:
        factors = max(2, self.iterations)  # with one iteration per step, the other factor follows in the next step
        return self if pays(parameter.like.shape, self.rank, self.least_ratio, factors) else Average()

    def init(self, like: Tensor, seed: int) -> PowerState:
        left, right = first_factors(like, self.rank, seed)
        return PowerState(left, right, from_left=False, seed=seed)

    def reduce(self, x: Tensor, state: PowerState) -> Conversation:
        remainder = as_matrix(x)
        products: list[Reply[LowRankProduct]] = []
        for iteration in range(self.iterations):
            if iteration:
                remainder = DeferredDifference(remainder, products[-1].sent).dense()
            from_left = state.from_left
            basis = orthonormal(state.left if from_left else state.right)
            image = yield Message((sums if from_left else dots)(basis, remainder), self.codec, state.seed)
            factors = [(basis, side) if from_left else (side, basis) for side in image]
            products.append(Reply(*(LowRankProduct(left, right, remainder) for left, right in factors)))
            new = renewed(image.reduced, state.right if from_left else state.left)
            left, right = (state.left, new) if from_left else (new, state.right)
            state = PowerState(left, right, not from_left, state.seed + STRIDE)
        reduced, sent = (_concatenated(column, x) for column in zip(*products, strict=True))
        return Reply(reduced, sent), state


def _concatenated(products: Sequence[LowRankProduct], like: Tensor) -> LowRankProduct:
    """The sum of the products, as one product."""
    if len(products) == 1:
        return LowRankProduct(products[0].left, products[0].right, like)
    return LowRankProduct(torch.cat([p.left for p in products]), torch.cat([p.right for p in products]), like)
