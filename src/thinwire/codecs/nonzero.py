from dataclasses import dataclass

from ..core import Codec, Parts, outline
from ..kernels import positions
from .sparse import scatter


@dataclass(frozen=True, repr=False)
class Nonzero(Codec):
    """Sends only the entries that are not zero, without loss but for the sign of zeros."""

    variable = True

    def encode(self, parts: Parts, seed: int) -> Parts:
        x, *below = parts
        flat = x.flatten()
        where = flat.nonzero().squeeze(1)
        return flat[where], positions.encode(where, flat.numel()), outline(x), *below

    def decode(self, parts: Parts, seed: int) -> Parts:
        values, coded, like, *below = parts
        return scatter(values, positions.decode(coded, values.numel(), like.numel()), like), *below
