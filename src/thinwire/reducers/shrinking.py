"""Codecs whose loss is remembered: contractions, or ever more would be."""

import warnings

from ..codecs import Shrink
from ..core import Codec

SIZES = (2, 1000, 10**6)  # of tensors, for which it has to be one
MAY_FORCE = ("ErrorFeedback", "EF21", "Difference")
NO_BOUND = (
    "{who} adds to each message what the earlier ones left unsaid. No bound is known for what {codec!r} loses (no "
    "delta): if it is more than it was given, what is left grows without end"
)


def shrunk(who: str, codec: Codec, force: bool = False) -> Codec:
    """The codec, or, if it grows, what it says divided by that; ValueError if it has no bound."""
    known = [codec.bounds(size) for size in SIZES]
    if all(bounds.least is not None for bounds in known) and any(bounds.most != 1 for bounds in known):
        return Shrink(codec)
    if any(bounds.delta is None for bounds in known):
        problem = NO_BOUND.format(who=who, codec=codec)
        if not force:
            way = f"; {who}(..., force=True) tries it all the same" if who in MAY_FORCE else ""
            raise ValueError(f"{problem}. A codec of your own states it as bounds(size){way}")
        warnings.warn(f"{problem}: watch the loss", stacklevel=5)
    return codec
