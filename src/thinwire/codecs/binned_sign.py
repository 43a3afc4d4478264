from dataclasses import dataclass

import torch
from torch import Tensor

from ..core import Parts, PayloadError
from ..core.bounds import Bounds, contraction
from ..core.lazy import outline
from ..kernels.sparse_tensor import SparseTensor
from .sparse_sign import check_size, mean_magnitude, signed
from .sparsifier import SparseCodec, scattered
from .validation import check_parts

# An element is a position in its bin and two bits: whether it is negative, and whether it is the last of its bin. A
# position of all ones marks an empty bin.
FORMS = ((63, 6, torch.uint8), (16_383, 14, torch.int16))


@dataclass(frozen=True, repr=False)
class BinnedSign(SparseCodec):
    """AdaComp's byte-aligned format of `SparseSign`: positions in bins and signs of the nonzero entries, and one scale.

    One byte per entry in bins of up to 63 entries, two in bins of up to 16,383.
    """

    bin_size: int

    variable = True
    numeric = False

    def __post_init__(self) -> None:
        if not (isinstance(self.bin_size, int) and 1 <= self.bin_size <= FORMS[-1][0]):
            raise ValueError(f"BinnedSign takes bins of 1 to {FORMS[-1][0]} entries, not {self.bin_size!r}")

    @property
    def form(self) -> tuple[int, torch.dtype]:
        """The bits of a position, and the dtype of an element."""
        return next((bits, dtype) for most, bits, dtype in FORMS if self.bin_size <= most)

    def bounds(self, size: int) -> Bounds:
        return contraction(size)

    def encode_sparse(self, kept: SparseTensor) -> Parts:
        values, where, (bits, dtype) = kept.values, kept.where, self.form
        of_bin = where // self.bin_size
        counts = torch.bincount(of_bin, minlength=-(-kept.shape.numel() // self.bin_size))
        # Where each bin's elements end; an empty bin has one marker element.
        ends = counts.clamp_min(1).cumsum(0)
        codes = torch.full((int(ends[-1]) if len(ends) else 0,), 2**bits - 1, device=where.device)
        first_of_bin = ends - counts.clamp_min(1)
        nth_of_bin = torch.arange(len(where), device=where.device) - (counts.cumsum(0) - counts)[of_bin]
        codes[first_of_bin[of_bin] + nth_of_bin] = (where % self.bin_size) | ((values < 0).long() << bits)
        codes[ends - 1] |= 2 << bits
        return codes.to(dtype), mean_magnitude(values), outline(kept)

    def decode_sparse(self, parts: Parts) -> tuple[SparseTensor, Parts]:
        coded, size, like, *below = parts
        check_parts(like, coded, size)
        check_size(size, like)
        bits, dtype = self.form
        if coded.dtype != dtype or coded.ndim != 1:
            raise PayloadError(f"{dtype} elements were expected, not {coded.dtype} {tuple(coded.shape)}")
        codes = coded.long() & (2 ** (bits + 2) - 1)
        position, negative, last = codes & (2**bits - 1), (codes >> bits) & 1, codes >> (bits + 1)
        bins = -(-like.numel() // self.bin_size)
        if int(last.sum()) != bins or (bins and not int(last[-1])):
            raise PayloadError(f"{int(last.sum())} bins are in the payload, but the tensor has {bins}")
        nonempty = position != 2**bits - 1
        where = ((last.cumsum(0) - last) * self.bin_size + position)[nonempty]
        _check(where, like, position[nonempty], self.bin_size)
        return scattered(signed(negative[nonempty], size), where, like), tuple(below)


def _check(where: Tensor, like: Tensor, position: Tensor, bin_size: int) -> None:
    if where.numel() == 0:
        return
    if int(position.max()) >= bin_size or int(where.max()) >= like.numel() or bool((where.diff() <= 0).any()):
        raise PayloadError(f"positions are not increasing within bins of {bin_size} of {like.numel()} entries")
