"""What a server remembers, whether it serves the whole tensor or a shard of it."""

from typing import NamedTuple

from torch import Tensor

from ..core import Codec


class ServerState(NamedTuple):
    residual: Tensor  # what the server has not yet said; zero on every other rank
    seed: int


def check_codec(name: str, direction: str, codec: Codec) -> None:
    if not isinstance(codec, Codec):
        raise ValueError(f"{name} takes a codec for {direction}, not {codec!r}")
