"""A strategy at work on one rank: its state, its guards, its checkpoints."""

import hashlib
import warnings
import weakref
from collections.abc import Callable
from itertools import zip_longest
from typing import Any

from torch import Tensor

from .core import Replica, Strategy, Talk
from .methods import notation_of
from .outcome import Lost, Outcome
from .reducers import After, Average, Momentum
from .states import plain, restored
from .strategies import DataParallel, Layer
from .transports import Collectives, Worker
from .version import __version__

ON_NONFINITE = ("raise", "skip", "pass")
STATE_VERSION = 2
WRONG = {
    "version": "this checkpoint is of another version",
    "method": "this checkpoint is of another method",
    "ranks": "the number of ranks has changed, and what each remembers with it; start afresh, without loading "
    "thinwire's state (the model and the optimizer load as always)",
    "rank": "this checkpoint is another rank's; what is left unsaid belongs to a rank, so save and load one per rank",
}


class NonFiniteError(FloatingPointError):
    """A gradient held NaN or infinity; what the replicas remember is as it was before the step."""


def check_on_nonfinite(choice: str) -> None:
    if choice not in ON_NONFINITE:
        raise ValueError(f"on_nonfinite is one of {', '.join(map(repr, ON_NONFINITE))}, not {choice!r}")


class Session:
    """Runs a strategy's talks on the queue of this rank, and keeps what it remembers."""

    def __init__(self, replica: Replica, strategy: Strategy, transport: Collectives, on_nonfinite: str) -> None:
        self.replica, self.strategy = replica, strategy
        self.transport, self.meter = transport, transport.meter
        self.on_nonfinite = on_nonfinite
        self._agree()
        self.state = strategy.init(replica)
        self.worker = Worker()
        weakref.finalize(self, self.worker.stop)  # a model that is dropped takes its thread with it
        self.begin_step()
        self._broken: BaseException | None = None
        self._at_last_step = self._counted()
        self._warned = False
        self._may_be_dense = isinstance(strategy, DataParallel) and all(
            unit.reducer == Average() or isinstance(unit.reducer, After) for unit in strategy.units(replica)
        )
        units = strategy.units(replica) if isinstance(strategy, DataParallel) else ()
        self._ramp_steps = max((u.reducer.ramp_steps for u in units if isinstance(u.reducer, Momentum)), default=0)

    def begin_step(self) -> None:
        """Remember what there is to go back to."""
        self._before_step, self._thrown_away = self.state, False

    def hold(self, talk: Talk, gradient_of: Callable[[str], Tensor | None]) -> None:
        """Hold a talk about these gradients to its end. Runs on the worker."""
        if self._broken is not None:
            raise RuntimeError("the ranks are out of step since an earlier error; restart") from self._broken
        try:
            outcome: Outcome = self.transport.run(talk)
        except BaseException as error:  # the other ranks may wait for what was not said
            self._broken = error
            raise
        self.state = outcome.state
        if outcome.lost:
            self._lose(outcome.lost, gradient_of)
        if self._thrown_away:
            self.state = self._before_step

    def count(self, nbytes: int) -> None:
        self.meter.count_dense(nbytes, self.transport.size)

    def end_step(self) -> None:
        """Count the step, and say once if the method does not save anything."""
        self.meter.steps += 1
        counted = self._counted()
        link, dense_link = (a - b for a, b in zip(counted, self._at_last_step, strict=True))
        self._at_last_step = counted
        # What is meant to be dense, at least to warm up, may differ by the rounding of shards and by a bit a parameter.
        slack = 64 * self.transport.size + len(self.replica.parameters) if self._may_be_dense else 0
        if link >= dense_link + slack and dense_link and not self._warned and self.meter.steps > self._ramp_steps:
            self._warned = True
            warnings.warn(
                f"{notation_of(self.strategy)} put {link:,} bytes on this node's link in a step, where a plain "
                f"all-reduce puts {dense_link:,}: on {self.transport.size} ranks it saves nothing",
                stacklevel=3,
            )

    def layers(self) -> dict[str, Layer]:
        self.worker.wait()
        if not isinstance(self.strategy, DataParallel):
            return {}
        return self.strategy.layers(self.replica, self.state, self.meter.dense_bytes, self.meter.said)

    def state_dict(self) -> dict[str, Any]:
        self.worker.wait()
        return {
            "version": STATE_VERSION,
            "method": notation_of(self.strategy),
            "rank": self.transport.rank,
            "ranks": self.transport.size,
            "parameters": self._described(),
            "meter": self.meter.as_dict(prefix=""),
            "itemised": self.meter.itemised(),
            "state": plain(self.state),
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self.worker.wait()
        expected = {
            "version": STATE_VERSION,
            "method": notation_of(self.strategy),
            "ranks": self.transport.size,
            "rank": self.transport.rank,
        }
        for name, value in expected.items():
            if saved.get(name) != value:
                raise ValueError(f"{WRONG[name]} ({name}: {saved.get(name)!r} in the checkpoint, {value!r} here)")
        missing = {"parameters", "meter", "itemised", "state"} - saved.keys()
        if missing:
            raise ValueError(f"this checkpoint lacks {', '.join(sorted(missing))}")
        for there, here in zip_longest(saved["parameters"], self._described(), fillvalue="nothing"):
            if there != here:
                raise ValueError(f"this checkpoint is of another model: it has {there}, here is {here}")
        state = restored(self.strategy.init(self.replica), saved["state"])
        self.meter.load(saved["meter"], saved["itemised"])
        self.state = state
        self._at_last_step = self._counted()

    def close(self) -> None:
        self.worker.close()
        self.transport.close()

    def _described(self) -> list[str]:
        return [f"parameter {name}: {p.dtype} {tuple(p.shape)}" for name, p in self.replica.parameters.items()]

    def _counted(self) -> tuple[int, int]:
        return self.meter.link_bytes, self.meter.dense_link_bytes

    def _lose(self, lost: tuple[Lost, ...], gradient_of: Callable[[str], Tensor | None]) -> None:
        if self.on_nonfinite == "raise":
            here = [name for message in lost for name in message.here]
            names = here or [name for message in lost for name in message.names]
            shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            self.state = self._before_step
            raise NonFiniteError(
                f"NaN or infinity in the gradient of {shown}, on "
                f"{'this' if here else 'another'} rank (this is rank {self.transport.rank}, step {self.meter.steps}). "
                "What thinwire remembers is as it was before. attach(..., on_nonfinite='skip') drops such messages, "
                "'pass' leaves them to a gradient scaler"
            )
        self.meter.skipped += len(lost)
        self._thrown_away = self.on_nonfinite == "pass"  # whoever sees the NaN will not make this step
        if self.on_nonfinite == "skip":
            for name in (name for message in lost for name in message.names):
                gradient = gradient_of(name)
                if gradient is not None:
                    gradient.zero_()

    def _agree(self) -> None:
        """Compare what every rank is about to do; a difference is the same error on all of them."""
        mine = [
            f"thinwire version: {__version__}",
            f"method: {notation_of(self.strategy)}",
            f"on_nonfinite: {self.on_nonfinite}",
            *self._described(),
        ]
        text = "\n".join(mine).encode()
        if len(set(self.transport.gather(hashlib.sha256(text).digest()))) == 1:
            return
        told = [heard.decode().split("\n") for heard in self.transport.gather(text)]
        first = told[0]
        rank = next(r for r, lines in enumerate(told) if lines != first)
        here, there = next((a, b) for a, b in zip_longest(first, told[rank], fillvalue="nothing more") if a != b)
        self.transport.close()
        raise ValueError(f"the ranks do not agree on what to train.\n  rank 0 has {here}\n  rank {rank} has {there}")
