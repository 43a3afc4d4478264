"""Comparisons: the same seeds, links and learning rates for every method, baselines included."""

import pytest

from tests.lab.recording.test_runs import example
from tests.lab.sample_tasks import called
from thinwire.lab.runner.plan import PlanError
from thinwire.lab.runner.study import cells_of, jobs_in

SETTINGS = {"workload": called("Tiny"), "ranks": 2, "transport": "simulated", "budget": "plateau", "methods": ["dense"]}


def cell(tmp_path, **settings):
    (only,) = cells_of(SETTINGS | settings, tmp_path)
    return only


def validated(accuracy, **changes):
    return example(metrics={"test_accuracy": 1 - accuracy, "validation_accuracy": accuracy}, **changes)


def test_the_learning_rate_is_tuned_by_validation_on_the_first_seed(tmp_path):
    tuned = cell(tmp_path, tune=[0.3, 1, 3], seeds=3)
    assert [(job.plan.lr_scale, job.plan.seed) for job in tuned.tuning] == [(0.3, 1), (1, 1), (3, 1)]
    assert tuned.count == 5, "three rates, and two more seeds of the best"
    some = {tuned.tuning[0]: validated(0.5), tuned.tuning[1]: validated(0.7)}
    assert tuned.ready(some, {}) == tuned.tuning, "other seeds wait until all rates are tried"
    made = some | {tuned.tuning[2]: validated(0.6)}
    assert tuned.best(made, {}) is tuned.tuning[1], "by validation: by the test set it would be the first"
    assert [(job.plan.lr_scale, job.plan.seed) for job in tuned.ready(made, {})[3:]] == [(1, 2), (1, 3)]


def test_tuning_minimizes_a_metric_that_is_better_when_lower(tmp_path):
    tuned = cell(tmp_path, tune=[1, 3])
    bits = {"metric": "test_bits", "better": "lower"}
    made = {
        job: example(metrics={"test_bits": 0.0, "validation_bits": value}, **bits)
        for job, value in zip(tuned.tuning, (2.5, 2.25), strict=True)
    }
    assert tuned.best(made, {}) is tuned.tuning[1]


def test_a_diverged_learning_rate_is_not_chosen(tmp_path):
    tuned = cell(tmp_path, tune=[0.3, 1, 3], seeds=2)
    low, middle, high = tuned.tuning
    made, diverged = {low: validated(0.5), middle: validated(float("nan"))}, "dense, seed 1: diverged: NaN"
    assert tuned.best(made, {high: diverged}) is low
    assert tuned.missing({high: diverged}) == []
    assert tuned.best({}, dict.fromkeys(tuned.tuning, diverged)) is None
    assert tuned.missing(dict.fromkeys(tuned.tuning, diverged)) == [diverged] * 3


def test_a_learning_rate_that_failed_for_another_reason_is_missing(tmp_path):
    tuned = cell(tmp_path, tune=[0.3, 1], seeds=2)
    low, high = tuned.tuning
    failed = {high: "dense, seed 1: rank 1 was killed by SIGKILL"}
    assert tuned.best({low: validated(0.5)}, failed) is None, "the grid is not complete"
    assert tuned.missing(failed) == list(failed.values())


def test_every_method_runs_on_every_link_seed_by_seed(tmp_path):
    cells = cells_of(SETTINGS | {"methods": ["dense", "topk"], "links": ["10mbit", "1gbit"], "seeds": [4, 9]}, tmp_path)
    jobs = jobs_in(cells, {}, {})
    assert [(job.plan.link, job.plan.method, job.plan.seed) for job in jobs] == [
        (link, method, seed) for seed in (4, 9) for link in ("10mbit", "1gbit") for method in ("dense", "topk")
    ]
    assert all(job.plan.modeled for job in jobs), "simulated ranks have no link"
    assert len({job.folder for job in jobs}) == 8


def test_baselines_are_plans_with_dense(tmp_path):
    alone, accumulated = cells_of(SETTINGS | {"methods": ["alone", "accumulate:8"]}, tmp_path)
    assert (alone.tuning[0].plan.alone, alone.tuning[0].plan.size) == (True, 1)
    assert (accumulated.tuning[0].plan.accumulate, accumulated.tuning[0].plan.label) == (8, "accumulate:8")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tune": []}, r"tune takes a list of factors for the learning rate, such as \[0.3, 1, 3\], not \[\]"),
        ({"tune": [0, 1]}, "tune takes a list of factors"),
        ({"tune": [1, 1]}, "1 is given twice in tune"),
        ({"tune": [1], "lr_scale": 2.0}, "a learning rate is scaled .* or tuned"),
        ({"links": "10mbit"}, "links takes a list"),
        ({"links": ["10mbit"], "link": "1gbit"}, "instead of a link"),
        ({"methods": ["accumulate:1"]}, "2 or more, as in accumulate:8"),
        ({"methods": ["accumulate"]}, "2 or more, as in accumulate:8"),
        ({"seeds": [1, 1]}, "1 is given twice in seeds"),
        ({"seeds": True}, "seeds takes a number of seeds"),
    ],
)
def test_an_invalid_setting_is_an_error(settings, message, tmp_path):
    with pytest.raises(PlanError, match=message):
        cells_of(SETTINGS | settings, tmp_path)
