"""The state of a parameter server, for the full tensor or for one shard of it."""

from typing import NamedTuple

from torch import Tensor

from ..core import Codec


class ServerState(NamedTuple):
    residual: Tensor  # compression error of the server's answers; zero on every other rank
    seed: int


def check_codec(name: str, direction: str, codec: Codec) -> None:
    if not isinstance(codec, Codec):
        raise ValueError(f"{name} takes a codec for {direction}, not {codec!r}")
