import threading

import pytest

from tests.lab.sample_tasks import called
from thinwire.lab.runner import clocks, simulation, straggler
from thinwire.lab.runner.learner import Learner
from thinwire.lab.runner.plan import Plan
from thinwire.lab.runner.straggler import Pace, Straggler, factor_of


def test_a_straggler_is_parsed_and_shown():
    slow = Straggler.parse("1:2.5", ranks=4)
    assert slow == Straggler(1, 2.5)
    assert str(slow) == "rank 1 is 2.5x slower"
    assert [factor_of("1:2.5", rank, 4) for rank in range(4)] == [1, 2.5, 1, 1]
    assert factor_of(None, 1, 4) == 1


def test_a_real_straggler_sleeps_for_the_additional_time_of_its_last_step(monkeypatch):
    slept = []
    monkeypatch.setattr(straggler.time, "sleep", slept.append)
    pace = Pace(3.0)
    for computed in (0.0, 0.25, 0.75):
        pace.wait(computed)
    assert slept == [0.5, 1.0]
    assert pace.slept == 1.5


def test_other_ranks_do_not_sleep(monkeypatch):
    monkeypatch.setattr(straggler.time, "sleep", None)
    pace = Pace(1.0)
    pace.wait(0.0)
    pace.wait(5.0)
    assert pace.slept == 0


@pytest.fixture
def one_second_per_call(monkeypatch):
    """Every backward and every update takes a second on a simulated rank; everything else takes no time."""
    elapsed = threading.local()

    def slowly(act):
        def timed(*args):
            elapsed.seconds = getattr(elapsed, "seconds", 0.0) + 1.0
            return act(*args)

        return timed

    monkeypatch.setattr(clocks.time, "thread_time", lambda: getattr(elapsed, "seconds", 0.0))
    for name in ("backward", "update"):
        monkeypatch.setattr(Learner, name, slowly(getattr(Learner, name)))


def test_simulated_ranks_wait_for_the_slowest(one_second_per_call):
    def run(slow):
        plan = Plan(called("Tiny"), "dpsgd", ranks=3, transport="simulated", steps=4, straggler=slow)
        events = []
        simulation.run([plan], events.append)
        return events[-1]["done"]

    alone, slowed = run(None), run("1:3")
    assert (alone["seconds"]["compute"], slowed["seconds"]["compute"]) == (8, 24), "two calls in each of four steps"
    assert slowed["seconds"]["total"] >= 24
    assert slowed["straggler"] == "1:3"
    assert "--straggler 1:3" in slowed["command"]
    assert [point["loss"] for point in slowed["history"]] == [point["loss"] for point in alone["history"]]
