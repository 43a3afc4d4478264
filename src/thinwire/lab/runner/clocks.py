"""The training time of a run, as one of its ranks measures it."""

import time
from collections.abc import Callable

from thinwire import inspect
from thinwire.lab.runner.straggler import Pace


class Clock:
    """Counts seconds of training; paused while a model is evaluated.

    On a straggler, `wait` sleeps for the additional time that its steps would have taken.
    """

    own = False  # whether it counts only what this rank computes itself, without waiting for others

    def __init__(self, slower: float = 1.0) -> None:
        self._pace = Pace(slower)
        self._seconds, self._computed = 0.0, 0.0
        self.resume()

    def wait(self) -> None:
        """Call before each step."""
        self._pace.wait(self._thread_seconds())

    def read(self) -> float:
        return self._seconds + time.perf_counter() - self._since

    def computed(self) -> float:
        """Seconds that this rank has computed, without encoding and decoding."""
        return self._thread_seconds() + self._pace.slept

    def pause(self) -> None:
        self._seconds, self._computed = self.read(), self._thread_seconds()

    def resume(self) -> None:
        self._since, self._thread_since = time.perf_counter(), time.thread_time()

    def state_dict(self) -> dict[str, float]:
        """The state of a paused clock."""
        return {"seconds": self._seconds, "computed": self._computed, "slept": self._pace.slept}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self._seconds, self._computed = state["seconds"], state["computed"]
        self._pace.restart(self._computed, state["slept"])
        self.resume()

    def _thread_seconds(self) -> float:
        """CPU seconds of this thread."""
        return self._computed + time.thread_time() - self._thread_since


class OwnClock(Clock):
    """The clock of a simulated rank: the seconds that it would take with a core of its own."""

    own = True

    def __init__(self, meter: inspect.Meter, communicated: Callable[[], float], slower: float = 1.0) -> None:
        self._meter, self._communicated, self._slower = meter, communicated, slower
        super().__init__()

    def wait(self) -> None:
        """Simulated ranks never sleep: a straggler's additional time is only counted."""

    def read(self) -> float:
        return self.computed() + self._meter.encode_seconds + self._meter.decode_seconds

    def computed(self) -> float:
        return self._thread_seconds() * self._slower

    def pause(self) -> None:
        self._computed = self._thread_seconds()

    def resume(self) -> None:
        super().resume()
        self._thread_since -= self._communicated()

    def _thread_seconds(self) -> float:
        """CPU seconds of this thread, without those it spent on communication."""
        return super()._thread_seconds() - self._communicated()
