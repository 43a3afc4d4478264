"""Runs by real ranks: gloo processes that torchrun starts. Those that a thin link joins are in links/test_runs.py."""

from dataclasses import replace

import pytest

from tests.lab.sample_tasks import called
from thinwire.lab.recording.runs import Run
from thinwire.lab.runner import processes, simulation
from thinwire.lab.runner.plan import Plan
from thinwire.lab.runner.run_folder import Place

METHODS = ("dense", "topk", "powersgd", "int8", "adacomp")


def plan(name="Tiny", method="dense", **settings):
    return Plan(called(name), method, **({"ranks": 2, "steps": 6, "evaluations": 2} | settings))


def heard_from(*plans, by=processes, folder=None):
    """What comes of plans; gradients that they capture go to folders of a folder."""
    heard = []
    by.run(list(plans), heard.append, folder and [Place(folder / str(number)) for number in range(len(plans))])
    return heard


def gradients_in(folder, number):
    return {path.name: path.read_bytes() for path in (folder / str(number) / "gradients").iterdir()}


def runs_in(heard):
    return [Run(**event["done"]) for event in heard if "done" in event]


def what_came_out(run):
    counted = {name: run.bytes[name] for name in ("dense", "payload", "link")}
    return run.metrics, counted, [(point["step"], point["loss"], point["payload_bytes"]) for point in run.history]


def judged(run):
    return [{name: value for name, value in noted.items() if name != "seconds"} for noted in run.evaluations]


def test_an_event_is_found_in_whatever_another_rank_prints_around_it(tmp_path):
    run = tmp_path / "0.json"
    run.write_text('{"label": "topk"}')
    line = f'half a word{processes.TOLD}{{"step": 3}}and{processes.TOLD}{{"done": "{run}"}}the rest\n'
    assert list(processes._events_in(line)) == [
        {"said": "half a word"},
        {"step": 3},
        {"said": "and"},
        {"done": {"label": "topk"}},
        {"said": "the rest"},
    ]
    assert list(processes._events_in("nothing else\n")) == [{"said": "nothing else\n"}]


def test_one_that_had_raised_is_the_cause_even_if_torchrun_ended_it_before_it_was_gone():
    said = """[rank1]: Traceback (most recent call last):
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
    assert processes._what_failed(said, 1) == "rank 1 ended with exit code 1: RuntimeError: too much"


# All that two ranks are asked to do: they are started once for it.
CAPTURED = [plan("RandomState", method, capture=3) for method in METHODS]
STRAGGLING = [plan("Tiny", "sgp", straggler=slow) for slow in (None, "0:50")]
PLANS = [*CAPTURED, *STRAGGLING, plan("Diverges"), plan("Exchanges")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("real")


@pytest.fixture(scope="module")
def events(folder):
    return heard_from(*PLANS, folder=folder)


def test_real_ranks_give_what_simulated_ones_do_to_the_value_the_byte_and_the_gradient(events, folder, tmp_path):
    simulated = heard_from(*(replace(p, transport="simulated") for p in CAPTURED), by=simulation, folder=tmp_path)
    real = runs_in(events)[: len(METHODS)]
    assert [what_came_out(run) for run in real] == [what_came_out(run) for run in runs_in(simulated)]
    assert [run.kinds for run in real] == [run.kinds for run in runs_in(simulated)]
    assert [run.layers for run in real] == [run.layers for run in runs_in(simulated)]
    assert [run.links for run in real] == [run.links for run in runs_in(simulated)]
    assert all(len(layer["residual"]) == len(run.evaluations) for run in real for layer in run.layers)
    captured = [gradients_in(folder, number) for number in range(len(METHODS))]
    assert captured == [gradients_in(tmp_path, number) for number in range(len(METHODS))]
    assert all(len(files) == 4 for files in captured)
    assert captured[METHODS.index("topk")] != captured[METHODS.index("powersgd")]


def test_a_straggler_takes_longer_and_learns_the_same(events):
    alone, slowed = runs_in(events)[len(CAPTURED) :][: len(STRAGGLING)]
    assert what_came_out(alone) == what_came_out(slowed)
    # It sleeps after all steps but the last, for as long as 49 such steps take.
    assert slowed.seconds["compute"] > 10 * alone.seconds["compute"]
    assert slowed.seconds["total"] > 0.9 * slowed.seconds["compute"], "the clock counts it"


def test_ranks_that_are_there_take_the_next_plan_as_well(events):
    assert [event["begins"] for event in events if "begins" in event] == list(range(len(PLANS)))


def test_divergence_is_one_message_and_ends_one_run(events):
    (failed,) = [event["failed"] for event in events if "failed" in event]
    assert "NaN or infinity" in failed
    assert len(runs_in(events)) == len(PLANS) - 1


def test_what_a_task_prints_is_heard_and_does_no_harm(events):
    said = "".join(event["said"] for event in events if "said" in event)
    assert said.count("clipped nothing") == 2 * 6


def test_a_run_tells_where_its_time_went(events):
    for run in runs_in(events):
        assert run.transport == "processes"
        assert all(run.seconds[part] > 0 for part in ("compute", "encode", "exchange", "decode"))
        assert run.seconds["total"] >= run.seconds["compute"] > 0
        assert [noted["step"] for noted in run.evaluations] == [3, 6]
