"""Entropy coding: models of the frequencies of symbols, and coders that use these frequencies."""

from .coders import Coder, Huffman, Rans
from .gen_norm import GenNorm, Laplace, Normal
from .histogram import Histogram
from .model import Model

__all__ = ["Coder", "GenNorm", "Histogram", "Huffman", "Laplace", "Model", "Normal", "Rans"]
