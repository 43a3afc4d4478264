import math

import pytest

from tests.lab.report.sample_runs import a_run, comparison, decentralized_run
from thinwire.lab.report.charts import curves
from thinwire.lab.report.summary import sections


def test_smoothing_starts_at_the_first_loss_and_follows_the_mean():
    assert curves.smoothed([2.0])[0] == 2.0
    assert curves.smoothed([1.0] * 50)[-1] == pytest.approx(1.0)
    # The second weighs 1, the first 0.9.
    assert curves.smoothed([1.0, 2.0])[-1] == pytest.approx((0.9 * 1 + 2) / 1.9)


def test_a_curve_is_the_mean_at_each_step_that_all_seeds_have():
    tracks = [{1: (1.0, 0.1), 2: (2.0, 0.2), 3: (3.0, 0.3)}, {1: (3.0, 0.3), 3: (5.0, 0.7)}]
    assert curves.averaged(tracks) == [(2.0, 0.2), (4.0, 0.5)]


def test_metrics_come_from_evaluations_or_else_from_the_end():
    (section,) = sections([a_run("dense"), a_run("fp16", evaluated=False, seconds=10.0, accuracy=0.8)])
    dense, half = curves.metrics(section, "seconds")
    assert [x for x, _ in dense.mean] == [5, 10, 15, 20]
    assert [y for _, y in dense.mean] == pytest.approx([0.225, 0.45, 0.675, 0.9])
    assert half.mean == [(10.0, 0.8)]
    (_, half) = curves.metrics(section, "payload_bytes")
    assert half.mean == [(1_000_000 * 100, 0.8)]


def test_examples_are_steps_times_those_of_a_step():
    runs = [a_run("dense"), a_run("accumulate:8", examples=1024, variant="accumulate:8")]
    runs.append(a_run("alone", examples=32, variant="alone", evaluated=False))
    (section,) = sections(runs)
    assert [entry.label for entry in section.entries] == ["dense", "accumulate:8", "alone"]
    dense, accumulated, alone = curves.metrics(section, "examples")
    assert [x for x, _ in dense.mean] == [128 * step for step in (25, 50, 75, 100)]
    assert [y for _, y in dense.mean] == pytest.approx([0.225, 0.45, 0.675, 0.9])
    assert [x for x, _ in accumulated.mean] == [1024 * step for step in (25, 50, 75, 100)]
    assert alone.mean == [(3200, 0.9)]
    loss = curves.losses(section, "examples")[2]
    assert [x for x, _ in loss.mean[:2]] == [32, 64]


def test_a_single_seed_has_only_the_mean_curve():
    (one,) = sections([a_run()])
    (several,) = sections(comparison())
    assert curves.losses(one, "seconds")[0].seeds == []
    assert len(curves.losses(several, "seconds")[0].seeds) == 3


def test_the_window_covers_the_second_half_and_the_target():
    (section,) = sections([a_run(accuracy=0.8)], target=0.84)
    low, high = curves.window(section, curves.metrics(section, "seconds"))
    assert 0.5 < low < 0.6 < 0.84 < high < 0.9


def test_the_window_of_a_fraction_ends_at_1():
    (section,) = sections([a_run(accuracy=1.0)])
    assert curves.window(section, curves.metrics(section, "seconds"))[1] == 1.0


def test_values_that_are_not_finite_are_left_out_of_the_window():
    run = a_run()
    run.evaluations[-1]["test_accuracy"] = math.nan
    (section,) = sections([run], target=0.7)
    low, high = curves.window(section, curves.metrics(section, "seconds"))
    assert 0 < low < high < 1


def test_consensus_distances_are_by_step_and_only_of_differing_replicas():
    (section,) = sections(
        [
            a_run("dense"),
            decentralized_run("dpsgd"),
            decentralized_run("dpsgd", seed=2, distances=(0.08, 0.03, 0.02, 0.01)),
        ]
    )
    (curve,) = curves.consensus_distances(section)
    assert curve.label == "dpsgd"
    assert [step for step, _ in curve.mean] == [25, 50, 75, 100]
    assert [distance for _, distance in curve.mean] == pytest.approx([0.06, 0.03, 0.02, 0.01])
    assert len(curve.seeds) == 2
