from itertools import pairwise

import pytest
import torch

import thinwire
from tests.lab.sample_tasks import called
from thinwire import extend
from thinwire.lab.recording.runs import Run
from thinwire.lab.runner import simulation
from thinwire.lab.runner.plan import Plan

NEIGHBOURS = [name for name in thinwire.METHODS if isinstance(thinwire.strategy_of(name), extend.Decentralized)]


def events_of(*plans):
    heard = []
    simulation.run(list(plans), heard.append)
    return heard


def run_of(name="Tiny", method="topk", **settings):
    settings = {"ranks": 2, "transport": "simulated", "steps": 6} | settings
    plan = Plan(name if "-" in name else called(name), method, **settings)
    (done,) = [event["done"] for event in events_of(plan) if "done" in event]
    return Run(**done)


def what_came_out(run):
    return run.metrics, run.bytes, [(point["step"], point["loss"], point["payload_bytes"]) for point in run.history]


@pytest.mark.parametrize("name", ["Tiny", "RandomState"])
def test_the_same_seed_gives_the_same_run(name):
    assert what_came_out(run_of(name)) == what_came_out(run_of(name))
    assert what_came_out(run_of(name)) != what_came_out(run_of(name, seed=2))


def test_ranks_that_work_at_once_give_what_they_give_in_turn(monkeypatch):
    at_once = what_came_out(run_of(ranks=4))
    monkeypatch.setattr(torch, "equal", lambda *_: False)  # as if the model had drawn: the ranks take turns
    assert what_came_out(run_of(ranks=4)) == at_once


def test_dense_ranks_learn_what_one_rank_learns_from_all_examples():
    # The mean of the ranks' gradients is the gradient of the whole batch; here, with the same examples everywhere.
    alone, four = (run_of(method="dense", ranks=ranks, batch=160, steps=4) for ranks in (1, 4))
    assert [p["loss"] for p in four.history] == pytest.approx([p["loss"] for p in alone.history], rel=1e-4)


def test_its_seconds_are_those_of_a_rank():
    run = run_of()
    assert run.transport == "simulated"
    parts = run.seconds["compute"] + run.seconds["encode"] + run.seconds["decode"]
    assert run.seconds["exchange"] == 0
    assert run.seconds["total"] == pytest.approx(parts, rel=0.5)
    assert not run.modeled
    assert "wire" not in run.bytes


@pytest.mark.parametrize("method", [name for name in thinwire.METHODS if name != "ab"])  # it counts by phase
def test_what_is_said_of_each_kind_of_layer_adds_up_to_what_was_said(method):
    run = run_of("digits-cnn", method=method, steps=2, evaluations=2)
    for what in ("dense", "payload"):
        assert sum(kind[what] for kind in run.kinds.values()) * run.steps == pytest.approx(run.bytes[what], rel=1e-12)
    assert sum(kind["elements"] for kind in run.kinds.values()) == run.parameters
    assert sum(layer["dense_bytes"][-1] for layer in run.layers) == run.bytes["dense"]
    assert [sum(layer["payload_bytes"][i] for layer in run.layers) for i in (0, 1)] == [
        noted["payload_bytes"] for noted in run.evaluations
    ]


def test_layers_tell_how_a_method_adapts():
    run = run_of("digits-cnn", method="adacomp", steps=8, evaluations=4)
    adapting = [layer for layer in run.layers if layer["residual"][0] is not None]
    assert {layer["kind"] for layer in adapting} == {"conv", "dense"}
    assert all(norm > 0 for layer in adapting for norm in (*layer["residual"], *layer["gradient"]))
    said = [[b - a for a, b in pairwise([0, *layer["payload_bytes"]])] for layer in adapting]
    assert all(len(set(stretches)) > 1 for stretches in said), "in every stretch something else"


@pytest.mark.parametrize("method", NEIGHBOURS)
def test_replicas_that_differ_are_judged_by_their_mean_and_by_the_worst(method):
    run = run_of(method=method, ranks=4, evaluations=3)
    assert all(0 < noted["consensus"] < 1 for noted in run.evaluations)
    assert ["worst_test_accuracy" in noted for noted in run.evaluations] == [False, False, True]
    assert run.metrics["consensus"] == run.evaluations[-1]["consensus"]
    assert 0 <= run.metrics["worst_test_accuracy"] <= 1


def test_replicas_that_are_alike_are_one_model():
    run = run_of(method="dense", ranks=4)
    assert run.metrics.keys() == {"test_accuracy", "test_loss"}
    assert all("consensus" not in noted for noted in run.evaluations)


def test_bytes_are_told_by_link():
    (ring, one_way) = (run_of(method=method, ranks=4) for method in ("dpsgd", "sgp"))
    whole = 4 * ring.parameters * ring.steps
    assert ring.links == {"rank": 0, "sent": {"1": whole, "3": whole}, "received": {"1": whole, "3": whole}}
    assert one_way.links["sent"].keys() == {"1", "2"}
    assert one_way.links["received"].keys() == {"2", "3"}
    for run in (ring, one_way, run_of(method="topk", ranks=3)):
        assert max(sum(run.links[way].values()) for way in ("sent", "received")) == run.bytes["link"]


def test_a_graph_of_ones_own_is_trained_over():
    run = run_of(method="Gossip(Identity(), Edges(((0, 1), (1, 2), (2, 3))))", ranks=4)
    assert run.links["rank"] == 1, "in the middle"
    assert run.links["sent"].keys() == {"0", "2"}


def test_divergence_fails_the_run_and_not_the_next_one():
    settings = {"ranks": 2, "transport": "simulated", "steps": 4}
    events = events_of(Plan(called("Diverges"), "topk", **settings), Plan(called("Tiny"), "topk", **settings))
    (failed,) = [event["failed"] for event in events if "failed" in event]
    assert "NaN or infinity in the gradient of" in failed
    assert [event["begins"] for event in events if "begins" in event] == [0, 1]
    assert "done" in events[-1]


def test_a_model_that_begins_to_draw_is_refused_rather_than_mixed_up():
    plan = Plan(called("DrawsLater"), "topk", ranks=2, transport="simulated", steps=6)
    (failed,) = [event["failed"] for event in events_of(plan) if "failed" in event]
    assert "use --transport processes" in failed


def test_the_number_of_threads_is_as_it_was():
    before = torch.get_num_threads()
    run_of(threads=before + 1)
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(("method", "other"), [("LeaderSGD(every=2)", "leader"), ("EASGD(every=2)", "center")])
def test_other_models_that_a_method_has_are_judged_too(method, other):
    run = run_of("digits-cnn", method=method, steps=4, evaluations=2)
    assert [f"{other}_{run.metric}" in noted for noted in run.evaluations] == [True, True]
    assert 0 <= run.metrics[f"{other}_{run.metric}"] <= 1
    assert run.metrics[f"{other}_{run.metric}"] != run.metrics[run.metric] or other == "leader"
