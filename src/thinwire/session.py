"""A strategy at work on one rank: its state, its guards, its checkpoints."""

import hashlib
import traceback
import warnings
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from itertools import zip_longest
from typing import Any, NoReturn

import torch
from torch import Tensor

from .core import Replica, Strategy, Talk
from .lazy import is_finite
from .methods import notation_of
from .outcome import Lost, Outcome
from .reducers import After, Average, Momentum
from .states import plain, restored
from .strategies import Consensus, DataParallel, Layer, Neighbours, consensus
from .transports import (
    Collectives,
    Decision,
    Meeting,
    Meter,
    Note,
    PeerLostError,
    Simulated,
    Unreachable,
    Worker,
    told_of,
)
from .version import __version__

ON_NONFINITE = ("raise", "skip", "pass")
ON_PEER_LOSS = ("raise", "continue")
ADVICE = (
    "What thinwire remembers is as it was before. attach(..., on_nonfinite='skip') drops such messages, 'pass' leaves "
    "them to a gradient scaler"
)
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


def check_on_peer_loss(choice: str, strategy: Strategy) -> None:
    if choice not in ON_PEER_LOSS:
        raise ValueError(f"on_peer_loss is one of {', '.join(map(repr, ON_PEER_LOSS))}, not {choice!r}")
    if choice == "continue" and not isinstance(strategy, Neighbours):
        raise ValueError(
            "on_peer_loss='continue' is for replicas that speak with neighbours only, and "
            f"{notation_of(strategy)} needs all ranks"
        )


class Session:
    """Runs a strategy's talks on the queue of this rank, and keeps what it remembers."""

    def __init__(
        self,
        replica: Replica,
        strategy: Strategy,
        transport: Collectives,
        on_nonfinite: str,
        on_peer_loss: str = "raise",
    ) -> None:
        self.replica, self.strategy = replica, strategy
        self.transport, self.meter = transport, transport.meter
        self.on_nonfinite, self.on_peer_loss = on_nonfinite, on_peer_loss
        self._agree()
        self.state = strategy.init(replica)
        self.worker = Worker()
        weakref.finalize(self, self.worker.stop)  # a model that is dropped takes its thread with it
        self.begin_step()
        self._broken: BaseException | None = None
        self._talks = 0  # begun, in an order that all ranks share
        self._behind = 0  # talks that the others have held, or given up, since some were lost
        self._under_way: Future[Any] | None = None
        self._at_last_step = self._counted()
        self._warned = isinstance(strategy, Neighbours) and strategy.lossless  # it is not meant to save anything
        self._may_be_dense = isinstance(strategy, DataParallel) and all(
            unit.reducer == Average() or isinstance(unit.reducer, After) for unit in strategy.units(replica)
        )
        units = strategy.units(replica) if isinstance(strategy, DataParallel) else ()
        self._ramp_steps = max((u.reducer.ramp_steps for u in units if isinstance(u.reducer, Momentum)), default=0)

    def begin_step(self) -> None:
        """Remember what there is to go back to."""
        self._before_step, self._thrown_away = self.state, False

    def hold(self, make: Callable[[], Talk], gradient_of: Callable[[str], Tensor | None]) -> None:
        """Hold a talk about these gradients to its end; it is made anew if some ranks are lost. Runs on the worker.

        Where messages travel while replicas compute, nothing is said here, and it runs where it is called.
        """
        outcome: Outcome | None = self.transport.run(make()) if self.overlapped else self._held(make, self.meter)
        if outcome is None:
            return
        self.state = outcome.state
        if outcome.lost:
            self._lose(outcome.lost, gradient_of)
        if self._thrown_away:
            self.state = self._before_step

    @property
    def rank(self) -> int:
        """As it was when all ranks were here."""
        return self.transport.names[self.transport.rank]

    @property
    def overlapped(self) -> int:
        """How many steps what was launched may take; 0 if nothing is."""
        return self.strategy.overlap if isinstance(self.strategy, Neighbours) else 0

    def launch(self) -> None:
        """Begin a talk that goes on while the replica computes, if it is time for one; the last one lands first."""
        if not self.overlapped or self.meter.steps % self.overlapped:
            return
        self.land()
        self._talks += 1
        if self._behind:
            self._behind -= 1
            return
        self.state, talk = self._neighbours().launch(self.replica, self.state)
        self._under_way = self.worker.submit(lambda: self.transport.run(talk))

    def land(self) -> None:
        """Finish what is on its way."""
        under_way, self._under_way = self._under_way, None
        if under_way is None:
            return
        self._check_whole()
        try:
            arrived = under_way.result()
        except Unreachable as error:  # what was given away is lost with it, and its weight too
            self._recover(error, self._talks + 1)
            return
        except BaseException as error:
            self._broken = error
            raise
        self.state, lost = self._neighbours().land(self.replica, self.state, arrived)
        if lost:
            self._lose(lost, lambda name: None)

    def consensus(self, buffers: Mapping[str, Tensor]) -> Consensus:
        """The mean of all replicas, and of these buffers."""
        self.worker.wait()
        self.land()
        aside = Meter()

        def talk(size: int) -> Talk:
            weight = self.strategy.weight_of(self.state) if isinstance(self.strategy, Neighbours) else 1.0
            return consensus(self.replica.parameters, buffers, weight, size)

        found: Consensus | None = self.worker.submit(
            lambda: self._held(lambda: talk(self.replica.size), aside)
        ).result()
        if found is None:  # the others were here before some of them were lost
            with torch.no_grad():
                (found,) = Simulated(1).run([talk(1)])
        self.meter.average_bytes += aside.link_bytes
        self.meter.consensus = found.distance
        return found

    def check_gradients(self) -> None:
        """Where gradients stay each rank's own, one that is not finite is this rank's own affair."""
        if self.on_nonfinite == "pass":
            return
        parameters = self.replica.parameters
        wrong = [name for name, p in parameters.items() if p.grad is not None and not is_finite(p.grad)]
        if wrong:
            self._lose((Lost(tuple(wrong), tuple(wrong)),), lambda name: parameters[name].grad)

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
        if not isinstance(self.strategy, DataParallel | Neighbours):
            return {}
        return self.strategy.layers(self.replica, self.state, self.meter.dense_bytes, self.meter.said)

    def state_dict(self) -> dict[str, Any]:
        self.worker.wait()
        self.land()
        return {
            "version": STATE_VERSION,
            "method": notation_of(self.strategy),
            "rank": self.transport.rank,
            "ranks": self.transport.size,
            "parameters": self._described(),
            "meter": self.meter.as_dict(prefix=""),
            "itemised": self.meter.itemised(),
            "state": plain(self.state),
        } | ({"replica": self._digest()} if self._is_local() else {})

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self.worker.wait()
        self.land()
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
        if self._is_local() and saved.get("replica") != self._digest():
            raise ValueError(
                "the parameters here are not those that this checkpoint was saved with. attach() copies rank 0's to "
                "all ranks: load the model after it, each rank its own, and then this"
            )
        state = restored(self.strategy.init(self.replica), saved["state"])
        self.meter.load(saved["meter"], saved["itemised"])
        self.state = state
        self._at_last_step = self._counted()

    def close(self) -> None:
        if self._broken is None:
            self.land()
        self.worker.close()
        self.transport.close()

    def _held(self, make: Callable[[], Talk], meter: Meter) -> Any:
        """What came of a talk; None if the others are past it since some ranks were lost."""
        self._check_whole()
        self._talks += 1
        while not self._behind:
            try:
                return self.transport.run(make(), meter)
            except Unreachable as error:
                self._recover(error, self._talks)
            except BaseException as error:  # the other ranks may wait for what was not said
                self._broken = error
                raise
        self._behind -= 1
        return None

    def _check_whole(self) -> None:
        if self._broken is not None:
            raise RuntimeError("the ranks are out of step since an earlier error; restart") from self._broken

    def _recover(self, error: Unreachable, resume: int) -> None:
        """Go on without the ranks that are lost, from the talk of this number on at the earliest; or say so, and stop.

        Those who are left may have been at different talks, a few apart: they meet again at the furthest one.
        """
        mine = resume
        while True:
            forget_frames(error)
            try:
                meeting = self.transport.hang_up(Note(resume, error.blamed))
                if self.on_peer_loss == "raise":
                    self._stop(meeting)
                decision = meeting.decide()
                self._go_on(decision)
            except Unreachable as another:
                error, resume = another, decision.resume
                continue
            except BaseException as problem:
                self._broken = problem
                raise
            self._behind = decision.resume - mine
            return

    def _stop(self, meeting: Meeting) -> NoReturn:
        lost = meeting.cause()
        meeting.wait(lost)
        advice = " (attach(..., on_peer_loss='continue') would go on without)" if self._is_local() else ""
        raise PeerLostError(
            f"{told_of(lost, self.transport.names, self.transport.patience)}. "
            f"This is rank {self.rank}, after step {self.meter.steps}{advice}"
        )

    def _go_on(self, decision: Decision) -> None:
        """With those who are left, and what they remember made to fit each other again."""
        transport, strategy = self.transport, self._neighbours()
        names, before = transport.names, transport.size
        told = told_of(decision.lost, names, transport.patience)
        if transport.rank not in decision.survivors:
            raise PeerLostError(f"the others have gone on without this rank, {self.rank}: {told}")
        transport.regroup(decision)
        self.replica = self.replica._replace(rank=transport.rank, size=transport.size)
        self.strategy = strategy.among(decision.survivors, before)
        self.state = transport.run(self.strategy.rejoin(self.replica)).state
        self._before_step, self._under_way = self.state, None
        self._at_last_step = self._counted()
        warnings.warn(f"{told}; the other {transport.size} ranks go on", stacklevel=2)

    def _is_local(self) -> bool:
        return isinstance(self.strategy, Neighbours)

    def _neighbours(self) -> Neighbours:
        assert isinstance(self.strategy, Neighbours), "others have nothing on its way"
        return self.strategy

    def _described(self) -> list[str]:
        return [f"parameter {name}: {p.dtype} {tuple(p.shape)}" for name, p in self.replica.parameters.items()]

    def _digest(self) -> str:
        """Of this rank's own parameters."""
        digest = hashlib.sha256()
        for p in self.replica.parameters.values():
            digest.update(p.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    def _counted(self) -> tuple[int, int]:
        return self.meter.link_bytes, self.meter.dense_link_bytes

    def _lose(self, lost: tuple[Lost, ...], gradient_of: Callable[[str], Tensor | None]) -> None:
        what = lost[0].what
        if self.on_nonfinite == "raise" or what != "gradient":
            here = [name for message in lost for name in message.here]
            names = here or [name for message in lost for name in message.names]
            shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            self.state = self._before_step
            problem = f"NaN or infinity in the {what} of {shown}"
            if here and self._is_local():  # the others have not heard of it
                self._leave(problem)
            raise NonFiniteError(
                f"{problem}, on {'this' if here else 'another'} rank (this is rank {self.rank}, step "
                f"{self.meter.steps}). {ADVICE if what == 'gradient' else 'The run has diverged'}"
            )
        self.meter.skipped += len(lost)
        self._thrown_away = self.on_nonfinite == "pass"  # whoever sees the NaN will not make this step
        if self.on_nonfinite == "skip":
            for name in (name for message in lost for name in message.names):
                gradient = gradient_of(name)
                if gradient is not None:
                    gradient.zero_()

    def _leave(self, problem: str) -> None:
        """Stop by oneself, and let the others know why."""
        self._broken = NonFiniteError(problem)
        if self.transport.size > 1:
            meeting = self.transport.hang_up(Note(left=problem))
            meeting.wait([])

    def _agree(self) -> None:
        """Compare what every rank is about to do; a difference is the same error on all of them."""
        mine = [
            f"thinwire version: {__version__}",
            f"method: {notation_of(self.strategy)}",
            f"on_nonfinite: {self.on_nonfinite}",
            f"on_peer_loss: {self.on_peer_loss}",
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


def forget_frames(error: BaseException) -> None:
    """Let go of what failed: a group's connections are open for as long as anything holds it."""
    traceback.clear_frames(error.__traceback__)
    error.__traceback__ = None
