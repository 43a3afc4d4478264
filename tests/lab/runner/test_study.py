"""Comparisons: the same seeds, links and learning rates for every method, baselines among them."""

import pytest

from tests.lab.recording.test_runs import example
from tests.lab.sample_tasks import called
from thinwire.lab.runner.plan import PlanError
from thinwire.lab.runner.study import cells_of, jobs_in

SAID = {"workload": called("Tiny"), "ranks": 2, "transport": "simulated", "budget": "plateau", "methods": ["dense"]}


def cell(tmp_path, **said):
    (only,) = cells_of(SAID | said, tmp_path)
    return only


def judged(accuracy, **changes):
    return example(metrics={"test_accuracy": 1 - accuracy, "validation_accuracy": accuracy}, **changes)


def test_the_learning_rate_is_chosen_by_validation_on_the_first_seed(tmp_path):
    tuned = cell(tmp_path, tune=[0.3, 1, 3], seeds=3)
    assert [(job.plan.lr_scale, job.plan.seed) for job in tuned.tuning] == [(0.3, 1), (1, 1), (3, 1)]
    assert tuned.count == 5, "three rates, and two more seeds of the best"
    some = {tuned.tuning[0]: judged(0.5), tuned.tuning[1]: judged(0.7)}
    assert tuned.ready(some, {}) == tuned.tuning, "other seeds wait until all rates were tried"
    made = some | {tuned.tuning[2]: judged(0.6)}
    assert tuned.best(made, {}) is tuned.tuning[1], "by validation: by the test set it would be the first"
    assert [(job.plan.lr_scale, job.plan.seed) for job in tuned.ready(made, {})[3:]] == [(1, 2), (1, 3)]


def test_a_lower_metric_may_be_the_better_one(tmp_path):
    tuned = cell(tmp_path, tune=[1, 3])
    bits = {"metric": "test_bits", "better": "lower"}
    made = {
        job: example(metrics={"test_bits": 0.0, "validation_bits": value}, **bits)
        for job, value in zip(tuned.tuning, (2.5, 2.25), strict=True)
    }
    assert tuned.best(made, {}) is tuned.tuning[1]


def test_a_rate_that_diverges_is_not_chosen(tmp_path):
    tuned = cell(tmp_path, tune=[0.3, 1, 3], seeds=2)
    low, middle, high = tuned.tuning
    made, diverged = {low: judged(0.5), middle: judged(float("nan"))}, "dense, seed 1: diverged: NaN"
    assert tuned.best(made, {high: diverged}) is low
    assert tuned.not_made({high: diverged}) == []
    assert tuned.best({}, dict.fromkeys(tuned.tuning, diverged)) is None
    assert tuned.not_made(dict.fromkeys(tuned.tuning, diverged)) == [diverged] * 3


def test_a_rate_that_failed_for_another_reason_is_missing(tmp_path):
    tuned = cell(tmp_path, tune=[0.3, 1], seeds=2)
    low, high = tuned.tuning
    failed = {high: "dense, seed 1: rank 1 was killed by SIGKILL"}
    assert tuned.best({low: judged(0.5)}, failed) is None, "the grid is not complete"
    assert tuned.not_made(failed) == list(failed.values())


def test_every_method_is_compared_on_every_link_seed_by_seed(tmp_path):
    cells = cells_of(SAID | {"methods": ["dense", "topk"], "links": ["10mbit", "1gbit"], "seeds": [4, 9]}, tmp_path)
    jobs = jobs_in(cells, {}, {})
    assert [(job.plan.link, job.plan.method, job.plan.seed) for job in jobs] == [
        (link, method, seed) for seed in (4, 9) for link in ("10mbit", "1gbit") for method in ("dense", "topk")
    ]
    assert all(job.plan.modeled for job in jobs), "simulated ranks have no wires"
    assert len({job.folder for job in jobs}) == 8


def test_baselines_are_plans_of_dense(tmp_path):
    alone, accumulated = cells_of(SAID | {"methods": ["alone", "accumulate:8"]}, tmp_path)
    assert (alone.tuning[0].plan.alone, alone.tuning[0].plan.size) == (True, 1)
    assert (accumulated.tuning[0].plan.accumulate, accumulated.tuning[0].plan.label) == (8, "accumulate:8")


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"tune": []}, r"tune takes what to multiply the learning rate by, such as \[0.3, 1, 3\], not \[\]"),
        ({"tune": [0, 1]}, "tune takes what to multiply"),
        ({"tune": [1, 1]}, "1 is given twice in tune"),
        ({"tune": [1], "lr_scale": 2.0}, "a learning rate is scaled .* or tuned"),
        ({"links": "10mbit"}, "links takes a list"),
        ({"links": ["10mbit"], "link": "1gbit"}, "instead of a link"),
        ({"methods": ["accumulate:1"]}, "2 or more, as in accumulate:8"),
        ({"methods": ["accumulate"]}, "2 or more, as in accumulate:8"),
        ({"seeds": [1, 1]}, "1 is given twice in seeds"),
        ({"seeds": True}, "seeds takes how many"),
    ],
)
def test_a_mistake_is_shown(said, message, tmp_path):
    with pytest.raises(PlanError, match=message):
        cells_of(SAID | said, tmp_path)
