"""What a replica is fed: it can be gone on with."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ..transports import RandomState, seed_all, seed_of
from .context import Context
from .contract import ContractError, called_at


class Inputs:
    """A replica's inputs in order, with random numbers of their own: what the model draws does not change them.

    So the same ones come again from the same seed, and all that there is to remember is how many were used. Inputs
    that have `state_dict` and `load_state_dict` are asked for that instead.
    """

    def __init__(
        self, make: Callable[[], Iterable[Any]], seed: int, replica: int, saved: dict[str, Any] | None = None
    ) -> None:
        self.seed = seed
        self.position = 0 if saved is None else saved["position"]
        self._draws = RandomState.now()
        with self._own():
            seed_all(seed_of(self.seed, replica))  # replicas that were seeded alike are not to be fed the same
            self._source = make()
            if not isinstance(self._source, Iterable):
                raise TypeError(f"input_fn(context) has to return batches, to iterate over, and not {self._source!r}")
            if self._remembers and saved is not None:
                self._source.load_state_dict(saved["state"])  # type: ignore[attr-defined]  # it remembers
                RandomState.read(saved["draws"]).put()
            self._items: Iterator[Any] = iter(self._source)
            for _ in range(0 if self._remembers else self.position):
                next(self._items, None)

    def next(self) -> Any:
        """StopIteration if there are no more."""
        if isinstance(self._source, range | list | tuple):  # which draw nothing
            item = next(self._items)
        else:
            with self._own():
                item = next(self._items)
        self.position += 1
        return item

    @property
    def length(self) -> int | None:
        """How many there are, those that were used included, if that is known."""
        try:
            return len(self._source)  # type: ignore[arg-type]  # not all have one
        except (TypeError, NotImplementedError, OverflowError):
            return None

    def check_lengths(self, context: Context, steps: int | None) -> None:
        """ContractError on all replicas if the inputs of some are known to end before those of others."""
        used = self.length if steps is None else steps if self.length is None else min(self.length, steps)
        there = context.all_gather(torch.tensor(-1 if used is None else used)).tolist()
        if len({n for n in there if n >= 0}) > 1:
            told = ", ".join(f"replica {r} {n}" for r, n in enumerate(there) if n >= 0)
            raise ContractError(
                f"the inputs of run() at {called_at()} are not of one length (batches: {told}): give all replicas as "
                "many, as context.share() does, or make as many steps as the shortest has (steps=...)"
            )

    def state_dict(self) -> dict[str, Any]:
        state = self._source.state_dict() if self._remembers else None  # type: ignore[attr-defined]
        return {"seed": self.seed, "position": self.position, "state": state, "draws": self._draws.plain()}

    @property
    def _remembers(self) -> bool:
        return hasattr(self._source, "state_dict") and hasattr(self._source, "load_state_dict")

    @contextmanager
    def _own(self) -> Iterator[None]:
        others = RandomState.now()
        self._draws.put()
        try:
            yield
        finally:
            self._draws = RandomState.now()
            others.put()
