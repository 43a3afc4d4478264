"""Codecs: pure maps between a tensor and the parts that stand for it."""

from .bin_marks import BinMarks
from .cast import Cast
from .chain import Chain
from .entropy import Entropy
from .identity import Identity
from .marks import Marks
from .mini_float import MiniFloat
from .nonzero import Nonzero
from .quantize import Quantize
from .random_k import RandomK
from .sign import Sign
from .ternary import Ternary
from .top_k import TopK

__all__ = [
    "BinMarks",
    "Cast",
    "Chain",
    "Entropy",
    "Identity",
    "Marks",
    "MiniFloat",
    "Nonzero",
    "Quantize",
    "RandomK",
    "Sign",
    "Ternary",
    "TopK",
]
