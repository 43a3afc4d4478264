from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..core.described import Described

Integers = NDArray[np.int64]


class Model(Described, ABC):
    """A model of the frequencies of symbols, given by parameters that are sent with them."""

    code: ClassVar[int]  # on the wire; models with the same kind of parameters share it

    @abstractmethod
    def fit(self, counts: Integers) -> bytes | None:
        """The parameters, as they are sent, for symbols with these counts; None if the model does not apply."""

    def fit_with_weights(self, counts: Integers) -> tuple[bytes, Integers] | None:
        """The parameters that `fit` finds, and the weights that `weights` computes from them.

        A model that has the weights without decoding the parameters overrides this; both must stay equal.
        """
        parameters = self.fit(counts)
        return None if parameters is None else (parameters, self.weights(parameters, len(counts))[0])

    @staticmethod
    @abstractmethod
    def weights(parameters: bytes, alphabet: int) -> tuple[Integers, int]:
        """The weights of symbols, integers below 2**40, and the number of bytes of the parameters.

        A symbol with a count has a weight above 0. Any bytes give weights or raise PayloadError.
        """
