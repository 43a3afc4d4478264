"""Codecs (compressors): pure maps between a tensor and the parts of its payload."""

from .adaptive_random import AdaptiveRandom
from .binned_sign import BinnedSign
from .cast import Cast
from .chain import Chain
from .dither import Dither
from .entropy import Entropy
from .exponential_dither import ExponentialDither
from .identity import Identity
from .mini_float import MiniFloat
from .natural_compression import NaturalCompression
from .nonzero import Nonzero
from .quantize import Quantize
from .random_k import RandomK
from .round import Round
from .shrink import Shrink
from .sign import Sign
from .sparse_sign import SparseSign
from .ternary import Ternary
from .top_k import TopK

__all__ = [
    "AdaptiveRandom",
    "BinnedSign",
    "Cast",
    "Chain",
    "Dither",
    "Entropy",
    "ExponentialDither",
    "Identity",
    "MiniFloat",
    "NaturalCompression",
    "Nonzero",
    "Quantize",
    "RandomK",
    "Round",
    "Shrink",
    "Sign",
    "SparseSign",
    "Ternary",
    "TopK",
]
