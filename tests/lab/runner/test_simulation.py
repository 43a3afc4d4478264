from itertools import pairwise

import pytest
import torch

import thinwire
from tests.lab.sample_tasks import called
from thinwire import extend
from thinwire.lab.recording.runs import Run
from thinwire.lab.runner import simulation
from thinwire.lab.runner.plan import Plan

DECENTRALIZED = [name for name in thinwire.METHODS if isinstance(thinwire.strategy_of(name), extend.Decentralized)]


def events_of(*plans):
    events = []
    simulation.run(list(plans), events.append)
    return events


def run_of(name="Tiny", method="topk", **settings):
    settings = {"ranks": 2, "transport": "simulated", "steps": 6} | settings
    plan = Plan(name if "-" in name else called(name), method, **settings)
    (done,) = [event["done"] for event in events_of(plan) if "done" in event]
    return Run(**done)


def results_of(run):
    return run.metrics, run.bytes, [(point["step"], point["loss"], point["payload_bytes"]) for point in run.history]


@pytest.mark.parametrize("name", ["Tiny", "RandomState"])
def test_equal_seeds_give_equal_runs(name):
    assert results_of(run_of(name)) == results_of(run_of(name))
    assert results_of(run_of(name)) != results_of(run_of(name, seed=2))


def test_concurrent_ranks_give_the_same_results_as_ranks_in_turn(monkeypatch):
    concurrent = results_of(run_of(ranks=4))
    monkeypatch.setattr(torch, "equal", lambda *_: False)  # as if the model were random: the ranks take turns
    assert results_of(run_of(ranks=4)) == concurrent


def test_dense_ranks_have_the_losses_of_one_rank_with_all_examples():
    # The mean of the ranks' gradients is the gradient of the whole batch.
    alone, four = (run_of(method="dense", ranks=ranks, batch=160, steps=4) for ranks in (1, 4))
    assert [p["loss"] for p in four.history] == pytest.approx([p["loss"] for p in alone.history], rel=1e-4)


def test_seconds_are_those_of_one_rank():
    run = run_of()
    assert run.transport == "simulated"
    parts = run.seconds["compute"] + run.seconds["encode"] + run.seconds["decode"]
    assert run.seconds["exchange"] == 0
    assert run.seconds["total"] == pytest.approx(parts, rel=0.5)
    assert not run.modeled
    assert "wire" not in run.bytes


@pytest.mark.parametrize(
    "method", [name for name in thinwire.METHODS if name != "ab"]
)  # its payload is counted by phase
def test_bytes_by_kind_and_by_layer_add_up_to_the_total(method):
    run = run_of("digits-cnn", method=method, steps=2, evaluations=2)
    for what in ("dense", "payload"):
        assert sum(kind[what] for kind in run.kinds.values()) * run.steps == pytest.approx(run.bytes[what], rel=1e-12)
    assert sum(kind["elements"] for kind in run.kinds.values()) == run.parameters
    assert sum(layer["dense_bytes"][-1] for layer in run.layers) == run.bytes["dense"]
    assert [sum(layer["payload_bytes"][i] for layer in run.layers) for i in (0, 1)] == [
        evaluation["payload_bytes"] for evaluation in run.evaluations
    ]


def test_layers_record_residuals_gradients_and_varying_bytes():
    run = run_of("digits-cnn", method="adacomp", steps=8, evaluations=4)
    adapting = [layer for layer in run.layers if layer["residual"][0] is not None]
    assert {layer["kind"] for layer in adapting} == {"conv", "dense"}
    assert all(norm > 0 for layer in adapting for norm in (*layer["residual"], *layer["gradient"]))
    sent = [[b - a for a, b in pairwise([0, *layer["payload_bytes"]])] for layer in adapting]
    assert all(len(set(intervals)) > 1 for intervals in sent), "the bytes differ between intervals"


@pytest.mark.parametrize("method", DECENTRALIZED)
def test_replicas_that_differ_are_evaluated_as_their_mean_and_the_worst(method):
    run = run_of(method=method, ranks=4, evaluations=3)
    assert all(0 < evaluation["consensus"] < 1 for evaluation in run.evaluations)
    assert ["worst_test_accuracy" in evaluation for evaluation in run.evaluations] == [False, False, True]
    assert run.metrics["consensus"] == run.evaluations[-1]["consensus"]
    assert 0 <= run.metrics["worst_test_accuracy"] <= 1


def test_identical_replicas_are_evaluated_as_one_model():
    run = run_of(method="dense", ranks=4)
    assert run.metrics.keys() == {"test_accuracy", "test_loss"}
    assert all("consensus" not in evaluation for evaluation in run.evaluations)


def test_bytes_are_recorded_by_link():
    (ring, one_way) = (run_of(method=method, ranks=4) for method in ("dpsgd", "sgp"))
    full = 4 * ring.parameters * ring.steps
    assert ring.links == {"rank": 0, "sent": {"1": full, "3": full}, "received": {"1": full, "3": full}}
    assert one_way.links["sent"].keys() == {"1", "2"}
    assert one_way.links["received"].keys() == {"2", "3"}
    for run in (ring, one_way, run_of(method="topk", ranks=3)):
        assert max(sum(run.links[way].values()) for way in ("sent", "received")) == run.bytes["link"]


def test_a_user_defined_graph_works():
    run = run_of(method="Gossip(Identity(), Edges(((0, 1), (1, 2), (2, 3))))", ranks=4)
    assert run.links["rank"] == 1, "in the middle"
    assert run.links["sent"].keys() == {"0", "2"}


def test_divergence_fails_the_run_but_not_the_next_one():
    settings = {"ranks": 2, "transport": "simulated", "steps": 4}
    events = events_of(Plan(called("Diverges"), "topk", **settings), Plan(called("Tiny"), "topk", **settings))
    (failed,) = [event["failed"] for event in events if "failed" in event]
    assert "NaN or infinity in the gradient of" in failed
    assert [event["started"] for event in events if "started" in event] == [0, 1]
    assert "done" in events[-1]


def test_a_model_that_becomes_random_later_is_an_error():
    plan = Plan(called("RandomLater"), "topk", ranks=2, transport="simulated", steps=6)
    (failed,) = [event["failed"] for event in events_of(plan) if "failed" in event]
    assert "use --transport processes" in failed


def test_the_number_of_threads_is_restored():
    before = torch.get_num_threads()
    run_of(threads=before + 1)
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(("method", "other"), [("LeaderSGD(every=2)", "leader"), ("EASGD(every=2)", "center")])
def test_other_models_of_a_method_are_evaluated_too(method, other):
    run = run_of("digits-cnn", method=method, steps=4, evaluations=2)
    assert [f"{other}_{run.metric}" in evaluation for evaluation in run.evaluations] == [True, True]
    assert 0 <= run.metrics[f"{other}_{run.metric}"] <= 1
    assert run.metrics[f"{other}_{run.metric}"] != run.metrics[run.metric] or other == "leader"
