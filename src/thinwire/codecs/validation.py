"""Checks that decoders make on received parts."""

from torch import Tensor

from ..core import PayloadError


def check_parts(like: Tensor, *data: Tensor) -> None:
    """Refuse parts that are not an outline (whose size decides what is allocated) with data for it."""
    if not (like.is_meta and like.is_floating_point()):
        raise PayloadError(f"the outline of a signal was expected, not {like.dtype} data of shape {tuple(like.shape)}")
    for part in data:
        if part.is_meta:
            raise PayloadError(f"data of shape {tuple(part.shape)} was expected, and there is only its outline")
