"""A replica's inputs, which can be resumed from a checkpoint."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ..transports import RandomState, seed_all, seed_of
from .context import Context
from .contract import ContractError, called_at


class Inputs:
    """A replica's inputs in order, with their own random generators, so that the model's draws do not change them.

    The same seed gives the same inputs, so a checkpoint needs only the seed and the number of inputs used. Inputs with
    `state_dict` and `load_state_dict` are saved and restored by these instead.
    """

    def __init__(
        self, make: Callable[[], Iterable[Any]], seed: int, replica: int, saved: dict[str, Any] | None = None
    ) -> None:
        self.seed = seed
        self.position = 0 if saved is None else saved["position"]
        self._random_state = RandomState.now()
        with self._own_generators():
            seed_all(seed_of(self.seed, replica))  # inputs differ between replicas even if the script seeds them alike
            self._source = make()
            if not isinstance(self._source, Iterable):
                raise TypeError(f"input_fn(context) must return an iterable of batches, not {self._source!r}")
            if self._is_stateful and saved is not None:
                self._source.load_state_dict(saved["state"])  # type: ignore[attr-defined]  # see _is_stateful
                RandomState.read(saved["draws"]).put()
            self._items: Iterator[Any] = iter(self._source)
            for _ in range(0 if self._is_stateful else self.position):
                next(self._items, None)

    def next(self) -> Any:
        """The next input; StopIteration at the end."""
        if isinstance(self._source, range | list | tuple):  # these draw no random numbers
            item = next(self._items)
        else:
            with self._own_generators():
                item = next(self._items)
        self.position += 1
        return item

    @property
    def length(self) -> int | None:
        """The number of inputs, including those used, or None if unknown."""
        try:
            return len(self._source)  # type: ignore[arg-type]  # TypeError without a length
        except (TypeError, NotImplementedError, OverflowError):
            return None

    def check_lengths(self, context: Context, steps: int | None) -> None:
        """ContractError on all replicas if known lengths differ."""
        used = self.length if steps is None else steps if self.length is None else min(self.length, steps)
        lengths = context.all_gather(torch.tensor(-1 if used is None else used)).tolist()
        if len({n for n in lengths if n >= 0}) > 1:
            listed = ", ".join(f"replica {r}: {n}" for r, n in enumerate(lengths) if n >= 0)
            raise ContractError(
                f"the inputs of run() at {called_at()} have different lengths (batches of {listed}): give all "
                "replicas the same number, as context.share() does, or pass steps=... of at most the shortest"
            )

    def state_dict(self) -> dict[str, Any]:
        state = self._source.state_dict() if self._is_stateful else None  # type: ignore[attr-defined]
        return {"seed": self.seed, "position": self.position, "state": state, "draws": self._random_state.plain()}

    @property
    def _is_stateful(self) -> bool:
        return hasattr(self._source, "state_dict") and hasattr(self._source, "load_state_dict")

    @contextmanager
    def _own_generators(self) -> Iterator[None]:
        outside = RandomState.now()
        self._random_state.put()
        try:
            yield
        finally:
            self._random_state = RandomState.now()
            outside.put()
