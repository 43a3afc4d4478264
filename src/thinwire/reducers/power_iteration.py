from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from ..codecs import Identity
from ..core import Codec, Conversation, Message, Parameter, Reducer, Reply
from .low_rank import as_matrix, check, first_factor, low_rank_or_dense, orthonormal


class PowerState(NamedTuple):
    factor: Tensor
    transposed: bool  # whether the factor stands for rows, so that the matrix is taken transposed


@dataclass(frozen=True, repr=False)
class PowerIteration(Reducer):
    """Sends one thin factor of each matrix a round, left and right in turn: PowerSGD's alternating form.

    Each further iteration in a step works on what the ones before left over, and all of them count.
    """

    rank: int  # columns of a factor; higher: closer, and more is sent
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
        reduced = sent = left_over.new_zeros(left_over.shape)
        for _ in range(self.iterations):
            basis = orthonormal(state.factor)
            image = yield Message((left_over.T if state.transposed else left_over) @ basis, self.codec)
            mine, agreed = (
                basis @ side.T if state.transposed else side @ basis.T for side in (image.sent, image.reduced)
            )
            reduced, sent, left_over = reduced + agreed, sent + mine, left_over - mine
            state = PowerState(image.reduced, not state.transposed)
        return Reply(reduced.to(x.dtype).view(x.shape), sent.to(x.dtype).view(x.shape)), state
