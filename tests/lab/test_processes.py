"""Runs by real ranks: gloo processes that torchrun starts, with and without a link that is really thin."""

import pytest

from tests.lab.tasks import called
from thinwire.lab import links, processes, simulation
from thinwire.lab.plan import Plan
from thinwire.lab.runs import Run

METHODS = ("dense", "topk", "powersgd", "int8", "adacomp")
REASON = links.possible()
needs_links = pytest.mark.skipif(REASON is not None, reason=f"no link can be made here: {REASON}")


def plan(name="Tiny", method="dense", **settings):
    return Plan(called(name), method, **({"ranks": 2, "steps": 6, "evaluations": 2} | settings))


def heard_from(*plans, by=processes):
    heard = []
    by.run(list(plans), heard.append)
    return heard


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


@pytest.fixture(scope="module")
def events():
    return heard_from(*(plan("Draws", method) for method in METHODS), plan("Diverges"), plan("Talks"))


def test_real_ranks_give_the_same_values_and_bytes_as_simulated_ones(events):
    simulated = heard_from(*(plan("Draws", method, transport="simulated") for method in METHODS), by=simulation)
    real = runs_in(events)[: len(METHODS)]
    assert [what_came_out(run) for run in real] == [what_came_out(run) for run in runs_in(simulated)]
    assert [run.kinds for run in real] == [run.kinds for run in runs_in(simulated)]
    assert [run.layers for run in real] == [run.layers for run in runs_in(simulated)]
    assert [run.links for run in real] == [run.links for run in runs_in(simulated)]
    assert all(len(layer["residual"]) == len(run.evaluations) for run in real for layer in run.layers)


def test_a_straggler_takes_longer_and_learns_the_same():
    plans = [plan("Tiny", "sgp", straggler=slow) for slow in (None, "0:50")]
    alone, slowed = runs_in(heard_from(*plans))
    assert what_came_out(alone) == what_came_out(slowed)
    # It sleeps after all steps but the last, for as long as 49 such steps take.
    assert slowed.seconds["compute"] > 10 * alone.seconds["compute"]
    assert slowed.seconds["total"] > 0.9 * slowed.seconds["compute"], "the clock counts it"


def test_ranks_that_are_there_take_the_next_plan_as_well(events):
    assert [event["begins"] for event in events if "begins" in event] == list(range(len(METHODS) + 2))


def test_divergence_is_one_message_and_ends_one_run(events):
    (failed,) = [event["failed"] for event in events if "failed" in event]
    assert "NaN or infinity" in failed
    assert len(runs_in(events)) == len(METHODS) + 1


def test_what_a_task_prints_is_heard_and_does_no_harm(events):
    said = "".join(event["said"] for event in events if "said" in event)
    assert said.count("clipped nothing") == 2 * 6


def test_a_run_tells_where_its_time_went(events):
    for run in runs_in(events):
        assert run.transport == "processes"
        assert all(run.seconds[part] > 0 for part in ("compute", "encode", "exchange", "decode"))
        assert run.seconds["total"] >= run.seconds["compute"] > 0
        assert [noted["step"] for noted in run.evaluations] == [3, 6]


@needs_links
def test_what_the_interface_counts_is_what_the_method_put_on_the_link_and_headers():
    # Large enough messages that headers are few, and small enough for a link that is thin.
    tasks = [Plan("digits-cnn", method, ranks=2, steps=8, link="100mbit") for method in ("dense", "fp16", "powersgd")]
    runs = runs_in(heard_from(*tasks))
    for run in runs:
        # TCP, IP and Ethernet take 66 bytes of every 1514; gloo asks and answers for every message.
        messages = 4 * run.steps * 4
        least, most = run.bytes["link"], run.bytes["link"] * 1514 / 1448 * 1.03 + messages * 300 + 10_000
        assert least < run.bytes["wire"] < most
        assert run.link == "100mbit"
        assert not run.modelled
    # A thin link is really thin: no step is faster than its bytes take.
    dense = runs[0]
    assert dense.seconds["total"] > dense.bytes["link"] * 8 / 100e6


@needs_links
def test_a_linked_run_gives_the_same_values_as_one_without():
    linked, simulated = (
        runs_in(heard_from(plan(method="topk", **settings), by=by))
        for settings, by in (({"link": "1gbit"}, processes), ({"transport": "simulated"}, simulation))
    )
    assert [what_came_out(run) for run in linked] == [what_came_out(run) for run in simulated]


@needs_links
def test_in_a_star_the_one_in_the_middle_carries_more_than_a_link_does():
    bits = 10e6
    (run,) = runs_in(
        heard_from(Plan("digits-cnn", "server:dense", ranks=3, steps=2, evaluations=1, link="star:10mbit"))
    )
    server, worker = (run.server[name] * 8 / bits for name in ("link", "worker"))
    assert server == 2 * worker > 2
    assert worker < run.seconds["total"] < 0.9 * server, "each worker's link takes its time, side by side"
