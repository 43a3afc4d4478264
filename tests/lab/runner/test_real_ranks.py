"""Runs by real ranks give the same results as runs by simulated ranks; times are not measured here."""

from dataclasses import replace

import pytest

from tests.attach import processes as pool
from tests.lab.runner.test_processes import evaluations_of, events_from, plan, results_of, runs_in
from thinwire.lab.runner import rank_process as rank
from thinwire.lab.runner import simulation

DECENTRALIZED = ("dpsgd", "choco", "powergossip", "sgp", "osgp")
SYNCHRONIZED = (
    "LocalSGD(Identity(), every=2, delay=1)",
    "Hierarchical(Identity(), LocalSGD(Identity(), every=2), GroupsOf(2))",
    "LeaderSGD(every=2, groups=GroupsOf(2), local_every=1)",
    "EASGD(every=2)",
    "ABTraining(after=1, every=2, full=1, ends=False, cutoff=0.3)",
)
WITH_SERVER = (
    "server:adacomp",
    "Server(Quantize(8), Identity(), dedicated=True)",
    "Server(Sign(), Sign(), rank=2, dedicated=True)",
)


def events_of_a_rank(plans):
    """The events of a gloo process of this test; test_processes.py has processes started by torchrun."""
    events = []
    rank.train(plans, lambda **event: events.append(event), folders=[])
    return events


@pytest.fixture(scope="module")
def runs():
    """The runs of real and of simulated ranks: four, so that not all ranks are neighbors."""
    plans = [plan("RandomState", method, ranks=4) for method in (*DECENTRALIZED, *WITH_SERVER, *SYNCHRONIZED)]
    plans.append(plan("RandomState", "dense", ranks=4, accumulate=2))  # under DDP
    real = runs_in(pool.run(events_of_a_rank, plans, ranks=4, timeout=120)[0])
    simulated = runs_in(events_from(*(replace(p, transport="simulated") for p in plans), by=simulation))
    assert [run.label for run in real] == [*DECENTRALIZED, *WITH_SERVER, *SYNCHRONIZED, "accumulate:2"]
    return real, simulated


def test_real_and_simulated_ranks_give_equal_runs(runs):
    for here, there in zip(*runs, strict=True):
        assert results_of(here) == results_of(there), here.label
        assert evaluations_of(here) == evaluations_of(there), here.label
        for what in ("kinds", "layers", "links", "groups", "factored", "server", "metrics"):
            assert getattr(here, what) == getattr(there, what), (here.label, what)


def test_decentralized_runs_record_the_consensus_distance_and_bytes_by_link(runs):
    for run in runs[0][: len(DECENTRALIZED)]:
        assert all(evaluation["consensus"] > 0 for evaluation in run.evaluations), run.label
        assert run.metrics["worst_test_accuracy"] <= 1, run.label
        assert len(run.links["sent"]) == 2, run.label


def test_runs_with_a_server_record_its_link_bytes_and_those_of_a_worker(runs):
    served = runs[0][len(DECENTRALIZED) : len(DECENTRALIZED) + len(WITH_SERVER)]
    assert [run.server["rank"] for run in served] == [0, 0, 2]
    assert all(run.bytes["link"] == run.server["link"] > 2 * run.server["worker"] > 0 for run in served)
    assert [run.batch for run in served] == [16, 15, 15], "dedicated servers get no share of the batch"
    assert not any(run.server for run in runs[0] if run not in served)


def test_runs_record_groups_and_low_rank_layers(runs):
    of_groups, of_factors = runs[0][-5:-3], runs[0][-2]
    assert all(run.groups["within"] and run.groups["between"] for run in of_groups)
    assert len(of_factors.factored["changes"]) >= 2
