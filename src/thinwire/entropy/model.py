from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..core.described import Described

Integers = NDArray[np.int64]


class Model(Described, ABC):
    """What is expected of symbols: how likely each is, told in a few parameters that travel with them."""

    code: ClassVar[int]  # on the wire; models that tell the same parameters share it

    @abstractmethod
    def fit(self, counts: Integers) -> bytes | None:
        """The parameters, as they travel, of symbols that are there so often; None if it cannot tell of such."""

    def told(self, counts: Integers) -> tuple[bytes, Integers] | None:
        """The parameters that `fit` finds, and the weights that whoever reads them will find.

        A model that knows those without reading overrides it, and keeps both alike.
        """
        parameters = self.fit(counts)
        return None if parameters is None else (parameters, self.weights(parameters, len(counts))[0])

    @staticmethod
    @abstractmethod
    def weights(told: bytes, alphabet: int) -> tuple[Integers, int]:
        """How likely symbols are, in whole numbers below 2**40, from parameters; and how many bytes those were.

        No symbol that was there when they were fitted is impossible. Whatever the bytes, a PayloadError or weights.
        """
