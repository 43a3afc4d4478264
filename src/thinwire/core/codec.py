"""The interface of codecs: a tensor to the parts that are sent, and back."""

from abc import ABC, abstractmethod

from torch import Tensor

from .bounds import Bounded
from .described import Described
from .lazy import LazyCoding

Parts = tuple[Tensor, ...]  # the signal first, then side information; a meta tensor is a shape without bytes


class PayloadError(ValueError):
    """A received payload cannot be a message of the kind that was agreed on."""


class Codec(Described, Bounded, LazyCoding, ABC):
    """A stateless pair of `encode` and `decode`. Decode undoes encode, up to the codec's error."""

    linear: bool = False  # the sum of the peers' signals stands for the sum of their tensors
    variable: bool = False  # the layout of the parts depends on the values, not only on the shape
    numeric: bool = True  # the last part still holds numbers, which any codec may encode further
    takes_codes: bool = False  # it may follow a codec whose last part holds codes, not numbers

    @abstractmethod
    def encode(self, parts: Parts, seed: int) -> Parts:
        """Replace the first part, the signal, by the parts that are sent for it. The seed is shared by all ranks."""

    @abstractmethod
    def decode(self, parts: Parts, seed: int) -> Parts:
        """Replace these parts by the decoded signal, of the original shape and type."""
