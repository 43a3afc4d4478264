"""How long a run takes, as one of its ranks counts it."""

import time
from collections.abc import Callable

from thinwire import inspect
from thinwire.lab.runner.straggler import Pace


class Clock:
    """Seconds of training; stands still while a model is evaluated.

    A rank that is to be slower than the others sleeps for what its steps would have taken longer.
    """

    own = False  # whether it counts what this rank spends alone, and no waiting

    def __init__(self, slower: float = 1.0) -> None:
        self._pace = Pace(slower)
        self._seconds, self._computed = 0.0, 0.0
        self.go_on()

    def wait(self) -> None:
        """Before each step."""
        self._pace.wait(self._at_work())

    def read(self) -> float:
        return self._seconds + time.perf_counter() - self._since

    def computed(self) -> float:
        """Seconds that this rank has computed, encoding and decoding aside."""
        return self._at_work() + self._pace.slept

    def stop(self) -> None:
        self._seconds, self._computed = self.read(), self._at_work()

    def go_on(self) -> None:
        self._since, self._at_work_since = time.perf_counter(), time.thread_time()

    def state_dict(self) -> dict[str, float]:
        """While it is stopped."""
        return {"seconds": self._seconds, "computed": self._computed, "slept": self._pace.slept}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self._seconds, self._computed = state["seconds"], state["computed"]
        self._pace.restart(self._computed, state["slept"])
        self.go_on()

    def _at_work(self) -> float:
        """Those that this thread was at work in."""
        return self._computed + time.thread_time() - self._at_work_since


class OwnClock(Clock):
    """Of a rank among others in one process: the seconds that it would take with a core of its own."""

    own = True

    def __init__(self, meter: inspect.Meter, talked: Callable[[], float], slower: float = 1.0) -> None:
        self._meter, self._talked, self._slower = meter, talked, slower
        super().__init__()

    def wait(self) -> None:
        """Nobody sleeps: time is counted, and does not pass."""

    def read(self) -> float:
        return self.computed() + self._meter.encode_seconds + self._meter.decode_seconds

    def computed(self) -> float:
        return self._at_work() * self._slower

    def stop(self) -> None:
        self._computed = self._at_work()

    def go_on(self) -> None:
        super().go_on()
        self._at_work_since -= self._talked()

    def _at_work(self) -> float:
        """Those that this thread was at work in, talks aside."""
        return super()._at_work() - self._talked()
