"""The errors of learned codes over a run, and the bytes that are sent while the codes are in use."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from torch import Tensor

from thinwire import inspect


class Codes:
    """One rank's record of its learned codes, step by step. Checkpoints contain all attributes, by name."""

    def __init__(self) -> None:
        self._learns: bool | None = None  # whether the next step is a learning step; None: no step yet
        self._said: list[int] = []  # payload bytes so far of the units with codes, by rank
        self._errors: list[tuple[int, float]] = []
        self._learning: list[list[int]] = []  # intervals: first and last step
        self.steps, self.dense, self.payload = 0, 0, 0.0  # of steps that sent codes

    def add(
        self,
        step: int,
        learning: Mapping[str, inspect.Learning],
        payload_by_unit: Sequence[Mapping[str, int]],
        parameters: Mapping[str, Tensor],
    ) -> None:
        """Record a step; `payload_by_unit` has the bytes that some ranks have sent so far, by unit."""
        if not learning:
            return
        now = [sum(counted.get(key, 0) for key in learning) for counted in payload_by_unit]
        learned = step == 1 if self._learns is None else self._learns
        if self._learns is False:
            self.steps += 1
            self.dense += sum(parameters[name].nbytes for key in learning for name in key.split(","))
            self.payload += fmean(after - before for after, before in zip(now, self._said, strict=True))
        elif learned and self._learning and self._learning[-1][1] == step - 1:
            self._learning[-1][1] = step
        elif learned:
            self._learning.append([step, step])
        self._learns, self._said = any(one.training for one in learning.values()), now
        error = max(one.error for one in learning.values())
        if not self._errors or self._errors[-1][1] != error:
            self._errors.append((step, error))

    def state_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    def as_dict(self, payload: float | None = None) -> dict[str, Any]:
        """For a run: the errors of the codes, when they were learned, and the bytes of the steps that used them.

        Only parameters that are sent as codes count. `payload`, if given, is the mean over more ranks than these.
        """
        if not self._errors:
            return {}
        coded = {
            "steps": self.steps,
            "dense": self.dense,
            "payload": round(self.payload if payload is None else payload),
        }
        return {"errors": [list(error) for error in self._errors], "learning": self._learning, "coded": coded}
