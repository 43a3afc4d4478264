import warnings

import pytest
import torch

import thinwire
from tests.lab.sample_tasks import called
from thinwire import inspect
from thinwire.lab.recording.record import MOST_POINTS, Record
from thinwire.lab.recording.warning_log import collected_warnings
from thinwire.lab.runner.learner import Learner, task_of
from thinwire.lab.runner.plan import Plan


def recorded(steps, link_bytes=1000, method="dense", others=(), **settings):
    plan = Plan(called("Tiny"), method, ranks=2, steps=steps, **settings)
    task = task_of(plan)
    record, meter = Record(plan, task, []), inspect.Meter()
    learner = Learner(plan, task, 0)
    for step in range(1, steps + 1):
        meter.payload_bytes += 100
        meter.dense_bytes += 400
        meter.link_bytes += link_bytes
        record.step(torch.tensor(float(step)), meter, seconds=0.5 * step)
        if record.is_due():
            record.add(record.evaluate(learner), None)
    return record.run(
        method="Average()",
        losses=record.losses,
        meter=meter.as_dict(prefix=""),
        total=0.5 * steps,
        compute=0.25 * steps,
        wire=None,
        payload_by_unit={},
        links={},
        groups={},
        carried=[meter.link_bytes, *(n * steps for n in others)],
        learned={},
        cpu=1.5,
    )


def test_a_run_has_everything_recorded():
    run = recorded(20, evaluations=4)
    assert [evaluation["step"] for evaluation in run.evaluations] == [5, 10, 15, 20]
    assert [evaluation["payload_bytes"] for evaluation in run.evaluations] == [500, 1000, 1500, 2000]
    assert [evaluation["seconds"] for evaluation in run.evaluations] == [2.5, 5.0, 7.5, 10.0]
    assert run.metrics["test_accuracy"] == run.evaluations[-1]["test_accuracy"]
    assert [point["loss"] for point in run.history] == list(range(1, 21))
    assert run.seconds["total"] == 10.0
    assert run.bytes == {"dense": 8000, "payload": 2000, "link": 20_000}
    assert run.ratio == 4
    assert run.parameters == 64 * 80 + 80 + 80 * 10 + 10


def test_more_evaluations_than_steps_give_one_per_step():
    assert [evaluation["step"] for evaluation in recorded(3).evaluations] == [1, 2, 3]


def test_a_long_history_is_averaged_over_intervals_of_all_steps():
    steps = 2 * MOST_POINTS + 1
    run = recorded(steps, evaluations=1)
    assert len(run.history) <= MOST_POINTS
    assert run.history[0]["step"] == 3
    assert run.history[0]["loss"] == 2.0, "the mean of steps 1 to 3"
    assert run.history[-1]["step"] == steps
    assert run.history[-1]["payload_bytes"] == 100 * steps


def test_modeled_time_adds_the_link_time_to_the_measured_time():
    run = recorded(10, link_bytes=125_000, link="2mbit/1mbit", modeled=True, transport="simulated")
    assert run.modeled
    assert run.seconds["exchange"] == pytest.approx(10.0)  # one second per step, in the slower direction
    assert run.seconds["total"] == pytest.approx(5.0 + 10.0)
    assert run.history[0]["seconds"] == pytest.approx(0.5 + 1.0)


def test_the_modeled_time_of_a_star_is_that_of_the_busiest_worker():
    settings = {"method": "server:dense", "others": (125_000, 62_500), "modeled": True, "transport": "simulated"}
    in_a_star, on_equal_links = (recorded(10, 187_500, link=link, **settings) for link in ("star:1mbit", "1mbit"))
    assert in_a_star.seconds["exchange"] == pytest.approx(10.0)
    assert on_equal_links.seconds["exchange"] == pytest.approx(15.0)
    assert in_a_star.server == {"rank": 0, "link": 1_875_000, "worker": 1_250_000}


def test_warnings_of_thinwire_are_collected_and_others_printed(capsys):
    with collected_warnings() as collected:
        warnings.warn_explicit("it saves nothing", UserWarning, thinwire.__file__, 1)
        warnings.warn_explicit("it saves nothing", UserWarning, thinwire.__file__, 1)
        warnings.warn_explicit("a task's own", UserWarning, "task.py", 7)
    assert collected == ["it saves nothing"]
    assert capsys.readouterr().err == "task.py:7: UserWarning: a task's own\n"
