from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..codecs import Identity
from ..core import Codec, Conversation, Message, Parameter, Reducer, Reply
from ..kernels.product import Product
from .low_rank import as_matrix, check, first_factor, low_rank_or_dense, orthonormal


class PowerState(NamedTuple):
    factor: Tensor
    transposed: bool  # whether the factor is as long as the matrix is high, so that the matrix is taken transposed


@dataclass(frozen=True, repr=False)
class PowerIteration(Reducer):
    """Sends one thin factor of each matrix a round, left and right in turn: PowerSGD's alternating form.

    Each further iteration in a step works on what the ones before left over, and all of them count.
    """

    rank: int  # rows of a factor; higher: closer, and more is sent
    iterations: int = 1  # rounds a step; higher: closer, and more is sent
    codec: Codec = Identity()  # for the factors
    least_ratio: float = 1.5

    def __post_init__(self) -> None:
        check("PowerIteration", self.rank, self.least_ratio, self.codec)
        if not (isinstance(self.iterations, int) and self.iterations >= 1):
            raise ValueError(f"PowerIteration takes 1 iteration or more, not {self.iterations!r}")

    @property
    def shaped(self) -> bool:
        return True

    def suited(self, parameter: Parameter) -> Reducer:
        return low_rank_or_dense(self, parameter, self.rank, self.least_ratio)

    def init(self, like: Tensor, seed: int) -> PowerState:
        return PowerState(first_factor(like, self.rank, seed), transposed=False)

    def reduce(self, x: Tensor, state: PowerState) -> Conversation:
        left_over = as_matrix(x)
        pieces: list[Reply[Product]] = []
        for iteration in range(self.iterations):
            if iteration:
                left_over = left_over.clone() if iteration == 1 else left_over
                pieces[-1].sent.subtract_from(left_over)
            basis = orthonormal(state.factor)
            image = yield Message(basis @ (left_over if state.transposed else left_over.T), self.codec)
            factors = [(basis, side) if state.transposed else (side, basis) for side in image]
            pieces.append(Reply(*(Product(left, right, left_over) for left, right in factors)))
            state = PowerState(image.reduced, not state.transposed)
        reduced, sent = (_joined(products, x) for products in zip(*pieces, strict=True))
        return Reply(reduced, sent), state


def _joined(products: Sequence[Product], like: Tensor) -> Product:
    """The sum of products, as one."""
    if len(products) == 1:
        return Product(products[0].left, products[0].right, like)
    return Product(torch.cat([p.left for p in products]), torch.cat([p.right for p in products]), like)
