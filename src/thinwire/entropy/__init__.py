"""Lossless coding of symbols: what is expected of them (models), and what writes them accordingly (coders)."""

from .coders import Coder, Huffman, Rans
from .gen_norm import GenNorm, Laplace, Normal
from .histogram import Histogram
from .model import Model

__all__ = ["Coder", "GenNorm", "Histogram", "Huffman", "Laplace", "Model", "Normal", "Rans"]
