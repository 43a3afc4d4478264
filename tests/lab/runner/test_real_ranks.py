"""Runs by real ranks, of which no time is measured: what comes out is what comes out of simulated ones."""

from dataclasses import replace

import pytest

from tests.attach import processes as pool
from tests.lab.runner.test_processes import heard_from, judged, plan, runs_in, what_came_out
from thinwire.lab.runner import rank_process as rank
from thinwire.lab.runner import simulation

NEIGHBOURS = ("dpsgd", "choco", "powergossip", "sgp", "osgp")
MEETING = (
    "LocalSGD(Identity(), every=2, delay=1)",
    "Hierarchical(Identity(), LocalSGD(Identity(), every=2), GroupsOf(2))",
    "LeaderSGD(every=2, groups=GroupsOf(2), local_every=1)",
    "EASGD(every=2)",
    "ABTraining(after=1, every=2, full=1, ends=False, cutoff=0.3)",
)
SERVED = (
    "server:adacomp",
    "Server(Quantize(8), Identity(), dedicated=True)",
    "Server(Sign(), Sign(), rank=2, dedicated=True)",
)


def told_by_a_rank(plans):
    """What a gloo process tells, in the place of one that torchrun started for it: test_processes.py has those."""
    told = []
    rank.train(plans, lambda **event: told.append(event), places=[])
    return told


@pytest.fixture(scope="module")
def runs():
    """Of real and of simulated ranks: four of them, so that not everyone is everyone's neighbor."""
    plans = [plan("RandomState", method, ranks=4) for method in (*NEIGHBOURS, *SERVED, *MEETING)]
    plans.append(plan("RandomState", "dense", ranks=4, accumulate=2))  # under DDP
    real = runs_in(pool.run(told_by_a_rank, plans, ranks=4, timeout=120)[0])
    simulated = runs_in(heard_from(*(replace(p, transport="simulated") for p in plans), by=simulation))
    assert [run.label for run in real] == [*NEIGHBOURS, *SERVED, *MEETING, "accumulate:2"]
    return real, simulated


def test_real_ranks_give_what_simulated_ones_give(runs):
    for here, there in zip(*runs, strict=True):
        assert what_came_out(here) == what_came_out(there), here.label
        assert judged(here) == judged(there), here.label
        for what in ("kinds", "layers", "links", "groups", "factored", "server", "metrics"):
            assert getattr(here, what) == getattr(there, what), (here.label, what)


def test_neighbours_tell_how_far_they_are_apart_and_with_whom_they_speak(runs):
    for run in runs[0][: len(NEIGHBOURS)]:
        assert all(noted["consensus"] > 0 for noted in run.evaluations), run.label
        assert run.metrics["worst_test_accuracy"] <= 1, run.label
        assert len(run.links["sent"]) == 2, run.label


def test_what_a_server_carries_is_told_apart_from_what_others_do(runs):
    served = runs[0][len(NEIGHBOURS) : len(NEIGHBOURS) + len(SERVED)]
    assert [run.server["rank"] for run in served] == [0, 0, 2]
    assert all(run.bytes["link"] == run.server["link"] > 2 * run.server["worker"] > 0 for run in served)
    assert [run.batch for run in served] == [16, 15, 15], "as many as train share it"
    assert not any(run.server for run in runs[0] if run not in served)


def test_groups_and_factors_are_told(runs):
    of_groups, of_factors = runs[0][-5:-3], runs[0][-2]
    assert all(run.groups["within"] and run.groups["between"] for run in of_groups)
    assert len(of_factors.factored["changes"]) >= 2
