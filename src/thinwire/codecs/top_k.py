from dataclasses import dataclass

from ..core import Codec, Parts, outline
from ..kernels import positions
from .sparse import check_ratio, kept, scatter


@dataclass(frozen=True, repr=False)
class TopK(Codec):
    """Keeps the largest entries by magnitude."""

    ratio: float  # of all entries; lower: less is sent

    def __post_init__(self) -> None:
        check_ratio("TopK", self.ratio)

    def encode(self, parts: Parts, seed: int) -> Parts:
        x, *below = parts
        flat = x.flatten()
        count = kept(self.ratio, flat.numel())
        where = flat.abs().topk(count, sorted=False).indices.sort().values
        return flat[where], positions.encode(where, flat.numel()), outline(x), *below

    def decode(self, parts: Parts, seed: int) -> Parts:
        values, coded, like, *below = parts
        return scatter(values, positions.decode(coded, values.numel(), like.numel()), like), *below
