"""How learned codes do as a run goes on, and how much is said while they are in use."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from torch import Tensor

from thinwire import inspect


class Codes:
    """Notes made after every step."""

    def __init__(self) -> None:
        self._learns: bool | None = None  # whether the next step is one of learning; None: it has not begun
        self._said: list[int] = []
        self._errors: list[tuple[int, float]] = []
        self._learning: list[list[int]] = []  # stretches: the first step and the last
        self.steps, self.dense, self.payload = 0, 0, 0.0  # while codes are said

    def note(
        self,
        step: int,
        learning: Mapping[str, inspect.Learning],
        said: Sequence[Mapping[str, int]],
        parameters: Mapping[str, Tensor],
    ) -> None:
        """What came of a step; said are the bytes of some ranks so far, by what they were about."""
        if not learning:
            return
        now = [sum(counted.get(key, 0) for key in learning) for counted in said]
        learned = step == 1 if self._learns is None else self._learns
        if self._learns is False:
            self.steps += 1
            self.dense += sum(parameters[name].nbytes for key in learning for name in key.split(","))
            self.payload += fmean(after - before for after, before in zip(now, self._said, strict=True))
        elif learned and self._learning and self._learning[-1][1] == step - 1:
            self._learning[-1][1] = step
        elif learned:
            self._learning.append([step, step])
        self._learns, self._said = any(one.goes_on for one in learning.values()), now
        error = max(one.error for one in learning.values())
        if not self._errors or self._errors[-1][1] != error:
            self._errors.append((step, error))

    def state_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    def told(self, payload: float | None = None) -> dict[str, Any]:
        """For a run: how far off codes were, when they were learned, and what was said in the steps that used them.

        That is of the parameters that go through them only; its payload may be a mean over more ranks than these.
        """
        if not self._errors:
            return {}
        coded = {
            "steps": self.steps,
            "dense": self.dense,
            "payload": round(self.payload if payload is None else payload),
        }
        return {"errors": [list(noted) for noted in self._errors], "learning": self._learning, "coded": coded}
