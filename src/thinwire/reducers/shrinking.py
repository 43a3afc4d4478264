"""Error feedback needs codecs that are contractions: with any other, the residual may grow without limit."""

import warnings

from ..codecs import Shrink
from ..core import Codec

SIZES = (2, 1000, 10**6)  # of tensors, for which the codec must be a contraction
MAY_FORCE = ("ErrorFeedback", "EF21", "Difference")
NO_BOUND = (
    "{who} adds the residual to each message. No bound is known for the error of {codec!r} (no delta): if the error is "
    "larger than the input, the residual grows without limit"
)


def shrunk(who: str, codec: Codec, force: bool = False) -> Codec:
    """The codec, wrapped in `Shrink` if its output is larger than its input on average; ValueError without a bound."""
    known = [codec.bounds(size) for size in SIZES]
    if all(bounds.least is not None for bounds in known) and any(bounds.most != 1 for bounds in known):
        return Shrink(codec)
    if any(bounds.delta is None for bounds in known):
        problem = NO_BOUND.format(who=who, codec=codec)
        if not force:
            remedy = f"; {who}(..., force=True) accepts it anyway" if who in MAY_FORCE else ""
            raise ValueError(f"{problem}. A custom codec states its bound in bounds(size){remedy}")
        warnings.warn(f"{problem}: watch the loss", stacklevel=5)
    return codec
