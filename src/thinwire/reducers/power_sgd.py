from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from ..codecs import Identity
from ..core import Codec, Conversation, Message, Parameter, Reducer, Reply
from ..kernels.low_rank_product import LowRankProduct, dots, renewed, sums
from .average import STRIDE, Average
from .low_rank import as_matrix, check, first_factors, orthonormal, pays


class PowerSGDState(NamedTuple):
    right: Tensor  # the factor that the next power iteration starts from (warm start), as rows: [rank, columns]
    seed: int  # of the next message


@dataclass(frozen=True, repr=False)
class PowerSGD(Reducer):
    """PowerSGD (Vogels et al., 2019): low-rank compression by one warm-started power iteration per step.

    Each step all-reduces two factors of the gradient matrix M. The first is P = M Q, with the Q of the last step. Every
    rank then makes the columns of P orthonormal. The second factor is the new Q = M^T P. The result is P Q^T. In the
    code, `left` is P^T as it was all-reduced, `basis` is P^T with orthonormal rows, and `right` is Q^T. Tensors of one
    dimension, and matrices with a compression ratio below `least_ratio`, are sent dense (uncompressed).

    It keeps no residual: `ErrorFeedback(PowerSGD(4))` is the method of the paper, and the short name `powersgd`.

    Examples:
        >>> import torch
        >>> from thinwire import PowerSGD
        >>> from thinwire.extend import Parameter
        >>> for shape in ((512, 512), (512, 3, 3, 3), (512,)):
        ...     outline = torch.empty(shape, device="meta")
        ...     print(shape, PowerSGD(2).specialize(Parameter("weight", "conv", outline)))
        (512, 512) PowerSGD(2)
        (512, 3, 3, 3) PowerSGD(2)
        (512,) Average()
    """

    same_arithmetic: ClassVar[bool] = True
    randomized: ClassVar[bool] = True

    rank: int  # of the approximation; higher: smaller error, more bytes
    codec: Codec = Identity()  # for the factors
    least_ratio: float = 1.5  # compression ratio below which a matrix is sent dense; higher: more matrices are

    def __post_init__(self) -> None:
        check("PowerSGD", self.rank, self.least_ratio, self.codec)

    @property
    def needs_shape(self) -> bool:
        return True

    def specialize(self, parameter: Parameter) -> Reducer:
        return self if pays(parameter.like.shape, self.rank, self.least_ratio) else Average()

    def init(self, like: Tensor, seed: int) -> PowerSGDState:
        return PowerSGDState(first_factors(like, self.rank, seed)[1], seed)

    def reduce(self, x: Tensor, state: PowerSGDState) -> Conversation:
        matrix = as_matrix(x)
        left = yield Message(dots(state.right, matrix), self.codec, state.seed)
        basis = orthonormal(left.reduced)
        right = yield Message(sums(basis, matrix), self.codec, state.seed + STRIDE)
        reply = Reply(LowRankProduct(basis, right.reduced, x), LowRankProduct(basis, right.sent, x))
        return reply, PowerSGDState(renewed(right.reduced, state.right), state.seed + 2 * STRIDE)
