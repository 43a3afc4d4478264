"""Runs by real ranks: gloo processes started by torchrun. Runs over links are in links/test_runs_over_links.py."""

from dataclasses import replace

import pytest

from tests.lab.sample_tasks import called
from thinwire.lab.recording.runs import Run
from thinwire.lab.runner import processes, simulation
from thinwire.lab.runner.plan import Plan
from thinwire.lab.runner.run_folder import RunFolder

METHODS = ("dense", "topk", "powersgd", "int8", "adacomp")


def plan(name="Tiny", method="dense", **settings):
    return Plan(called(name), method, **({"ranks": 2, "steps": 6, "evaluations": 2} | settings))


def events_from(*plans, by=processes, folder=None):
    """The events of plans; captured gradients are saved in subfolders of a folder."""
    events = []
    by.run(list(plans), events.append, folder and [RunFolder(folder / str(number)) for number in range(len(plans))])
    return events


def gradients_in(folder, number):
    return {path.name: path.read_bytes() for path in (folder / str(number) / "gradients").iterdir()}


def runs_in(events):
    return [Run(**event["done"]) for event in events if "done" in event]


def results_of(run):
    counted = {name: run.bytes[name] for name in ("dense", "payload", "link")}
    return run.metrics, counted, [(point["step"], point["loss"], point["payload_bytes"]) for point in run.history]


def evaluations_of(run):
    return [{name: value for name, value in evaluation.items() if name != "seconds"} for evaluation in run.evaluations]


def test_an_event_is_found_within_the_output_of_another_rank(tmp_path):
    run = tmp_path / "0.json"
    run.write_text('{"label": "topk"}')
    line = f'half a word{processes.EVENT_PREFIX}{{"step": 3}}and{processes.EVENT_PREFIX}{{"done": "{run}"}}the rest\n'
    assert list(processes._events_in(line)) == [
        {"output": "half a word"},
        {"step": 3},
        {"output": "and"},
        {"done": {"label": "topk"}},
        {"output": "the rest"},
    ]
    assert list(processes._events_in("nothing else\n")) == [{"output": "nothing else\n"}]


def test_a_rank_that_had_raised_is_the_cause_even_if_torchrun_killed_it():
    output = """[rank1]: Traceback (most recent call last):
[rank1]:   File "task.py", line 3, in adjust
[rank1]: RuntimeError: too much
[rank0]: Traceback (most recent call last):
[rank0]:   File "task.py", line 9, in meet
[rank0]: thinwire.replicator.contract.ContractError: rank 1 has stopped: RuntimeError: too much
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
[1]: rank      : 1 (local_rank: 1)
  exitcode  : -15 (pid: 2)
[2]: rank      : 2 (local_rank: 2)
  exitcode  : -15 (pid: 3)
[0]: rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 1)
"""
    assert processes._failure(output, 1) == "rank 1 ended with exit code 1: RuntimeError: too much"


# All plans of this file: the two ranks are started once for all of them.
CAPTURED = [plan("RandomState", method, capture=3) for method in METHODS]
STRAGGLING = [plan("Tiny", "sgp", straggler=slow) for slow in (None, "0:50")]
PLANS = [*CAPTURED, *STRAGGLING, plan("Diverges"), plan("Prints")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("real")


@pytest.fixture(scope="module")
def events(folder):
    return events_from(*PLANS, folder=folder)


def test_real_and_simulated_ranks_give_equal_values_bytes_and_gradients(events, folder, tmp_path):
    simulated = events_from(*(replace(p, transport="simulated") for p in CAPTURED), by=simulation, folder=tmp_path)
    real = runs_in(events)[: len(METHODS)]
    assert [results_of(run) for run in real] == [results_of(run) for run in runs_in(simulated)]
    assert [run.kinds for run in real] == [run.kinds for run in runs_in(simulated)]
    assert [run.layers for run in real] == [run.layers for run in runs_in(simulated)]
    assert [run.links for run in real] == [run.links for run in runs_in(simulated)]
    assert all(len(layer["residual"]) == len(run.evaluations) for run in real for layer in run.layers)
    captured = [gradients_in(folder, number) for number in range(len(METHODS))]
    assert captured == [gradients_in(tmp_path, number) for number in range(len(METHODS))]
    assert all(len(files) == 4 for files in captured)
    assert captured[METHODS.index("topk")] != captured[METHODS.index("powersgd")]


def test_a_straggler_takes_longer_with_the_same_results(events):
    alone, slowed = runs_in(events)[len(CAPTURED) :][: len(STRAGGLING)]
    assert results_of(alone) == results_of(slowed)
    # Before each step but the first, it sleeps for the time of 49 steps.
    assert slowed.seconds["compute"] > 10 * alone.seconds["compute"]
    assert slowed.seconds["total"] > 0.9 * slowed.seconds["compute"], "the clock counts the sleep"


def test_the_same_ranks_execute_all_plans(events):
    assert [event["started"] for event in events if "started" in event] == list(range(len(PLANS)))


def test_divergence_is_one_event_and_ends_one_run(events):
    (failed,) = [event["failed"] for event in events if "failed" in event]
    assert "NaN or infinity" in failed
    assert len(runs_in(events)) == len(PLANS) - 1


def test_the_output_of_a_task_is_passed_on(events):
    output = "".join(event["output"] for event in events if "output" in event)
    assert output.count("clipped nothing") == 2 * 6


def test_a_run_has_the_seconds_of_each_part(events):
    for run in runs_in(events):
        assert run.transport == "processes"
        assert all(run.seconds[part] > 0 for part in ("compute", "encode", "exchange", "decode"))
        assert run.seconds["total"] >= run.seconds["compute"] > 0
        assert [evaluation["step"] for evaluation in run.evaluations] == [3, 6]
