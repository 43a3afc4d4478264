"""What the codecs that keep only some entries share."""

from torch import Tensor

from .hostile import check_parts


def kept(ratio: float, size: int) -> int:
    """How many of `size` entries a ratio keeps: at least one, if there is one."""
    return min(size, max(1, round(ratio * size)))


def check_ratio(codec: str, ratio: float) -> None:
    if not 0 < ratio <= 1:
        raise ValueError(f"{codec} keeps a ratio between 0 and 1 of the entries, not {ratio!r}")


def scatter(values: Tensor, positions: Tensor, like: Tensor) -> Tensor:
    """A tensor like `like`, zero but for the values at their positions."""
    check_parts(like, values, positions)
    flat = values.new_zeros(like.numel(), dtype=like.dtype)
    flat[positions] = values.to(like.dtype)
    return flat.view(like.shape)
