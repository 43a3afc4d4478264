import math

import pytest

from tests.lab.report.sample_runs import a_run, comparison, decentralized_run
from thinwire.lab.report.summary import Figure, sections
from thinwire.lab.report.time_to_metric import seconds_to


def section_of(runs, target=None):
    (section,) = sections(runs, target)
    return section


def evaluated(*points, metric="test_accuracy", **changes):
    evaluations = [{"step": i, "payload_bytes": i, "seconds": s, metric: value} for i, (s, value) in enumerate(points)]
    return a_run(evaluations=evaluations, metric=metric, **changes)


def test_mean_and_spread_over_seeds():
    figure = Figure((0.90, 0.92, 0.97))
    assert figure.mean == pytest.approx(0.93)
    # Deviations -0.03, -0.01 and 0.04; their squares are 0.0026 in all, over two degrees of freedom.
    assert figure.spread == pytest.approx(math.sqrt(0.0013))
    assert Figure((0.9,)).spread is None


def test_an_entry_has_the_seeds_of_a_method():
    section = section_of(comparison())
    assert [entry.label for entry in section.entries] == ["dense", "fp16", "powersgd", "<b>&tiny"]
    for entry in section.entries:
        assert sorted(run.seed for run in entry.runs) == [1, 2, 3]
    tiny = section.entries[3]
    assert tiny.metric.mean == pytest.approx(0.8)
    assert tiny.metric.spread == pytest.approx(0.01)
    assert tiny.bytes_per_step("payload").mean == pytest.approx(8000)
    assert tiny.bytes_per_step("link").mean == pytest.approx(12_000)
    assert tiny.bytes_per_step("wire").mean == pytest.approx(12_800)
    assert tiny.ratio.mean == pytest.approx(125)
    assert tiny.seconds_per_step().mean == pytest.approx(0.125)
    assert tiny.seconds_per_step("encode").mean == pytest.approx(0.0125)
    assert tiny.kinds("payload") == pytest.approx({"conv": 4800, "small ones": 3200})


@pytest.mark.parametrize(
    "other",
    [
        {"workload": "another"},
        {"link": "1gbit"},
        {"link": None},
        {"ranks": 8},
        {"transport": "simulated"},
        {"modeled": True},
        {"budget": "full"},
        {"shards": "dirichlet:0.1"},
        {"batch": 64},
        {"straggler": "1:3"},
    ],
)
def test_runs_that_cannot_be_compared_are_in_separate_sections(other):
    first, second = sections([a_run(), a_run(seed=2, **other), a_run(seed=3)])
    assert [run.seed for run in first.runs] == [1, 3]
    assert [run.seed for run in second.runs] == [2]


def test_one_label_for_two_methods_becomes_two_entries():
    section = section_of([a_run("mine"), a_run("mine", method="TopK(0.01)"), a_run("mine", steps=50)])
    assert len(section.entries) == 3
    assert {entry.label for entry in section.entries} == {
        "mine: Sign(), 100 steps",
        "mine: TopK(0.01), 100 steps",
        "mine: Sign(), 50 steps",
    }


def test_a_run_without_a_label_has_its_short_name_or_its_notation():
    section = section_of([a_run(label="", method=m) for m in ("Average()", "ErrorFeedback(PowerSGD(4))", "TopK(0.5)")])
    assert {entry.label for entry in section.entries} == {"dense", "powersgd", "TopK(0.5)"}


def test_baselines_of_dense_are_not_dense():
    runs = [a_run(label, variant=label, method="Average()", ratio=0.5) for label in ("alone", "accumulate:8")]
    section = section_of([*runs, a_run("dense")])
    assert [entry.is_dense for entry in section.entries] == [True, False, False]
    assert section.dense.label == "dense"
    assert section_of(runs).dense is None


def test_one_label_for_a_method_and_its_variant_becomes_two_entries():
    section = section_of([a_run("mine"), a_run("mine", variant="accumulate:8")])
    assert {entry.label for entry in section.entries} == {
        "mine: Sign(), 100 steps",
        "mine: Sign(), accumulate:8, 100 steps",
    }


def test_bytes_that_not_every_run_recorded_are_not_shown():
    runs = [a_run(seed=1), a_run(seed=2, bytes={"dense": 10, "payload": 10, "link": 15})]
    entry = section_of(runs).entries[0]
    assert entry.bytes_per_step("wire") is None
    assert entry.bytes_per_step("link") is not None


def test_the_target_is_within_a_percent_of_dense():
    assert section_of(comparison()).target == pytest.approx(0.99 * 0.9)
    lower = [
        a_run(metric="test_loss", better="lower", metrics={"test_loss": 2.0}),
        a_run("fp16", metric="test_loss", better="lower", metrics={"test_loss": 1.0}),
    ]
    assert section_of(lower).target == pytest.approx(1.01 * 2.0)


def test_without_dense_the_target_is_within_a_percent_of_the_best():
    runs = [a_run("fp16", accuracy=0.7), a_run("powersgd", accuracy=0.8)]
    assert section_of(runs).target == pytest.approx(0.99 * 0.8)


def test_a_given_target_is_used_and_a_percentage_is_an_error():
    assert section_of(comparison(), 0.5).target == 0.5
    with pytest.raises(ValueError, match="from 0 to 1, not 90"):
        sections(comparison(), 90)
    assert section_of([a_run(metric="test_loss", better="lower")], 90).target == 90


def test_diverged_runs_have_no_target():
    diverged = a_run(metrics={"test_accuracy": math.nan})
    assert section_of([diverged]).target is None
    assert section_of([diverged, a_run("fp16", accuracy=0.8)]).target == pytest.approx(0.99 * 0.8)


@pytest.mark.parametrize(
    ("points", "target", "seconds"),
    [
        ([(1, 0.2), (3, 0.6)], 0.5, 2.5),
        ([(1, 0.2), (3, 0.6)], 0.6, 3.0),
        ([(1, 0.2), (3, 0.6)], 0.2, 1.0),
        ([(1, 0.2), (3, 0.6)], 0.1, 1.0),
        ([(1, 0.2), (3, 0.6)], 0.61, None),
        ([(1, 0.2), (2, 0.6), (3, 0.1), (4, 0.9)], 0.5, 1.75),
        ([(1, 0.4), (2, 0.2), (4, 0.6)], 0.5, 3.5),
        ([(1, 0.2), (2, math.nan), (3, 0.6)], 0.5, 2.5),
        ([(1, math.nan), (2, 0.6)], 0.5, 2.0),
        ([], 0.5, None),
    ],
    ids=[
        "between",
        "at the last",
        "at the first",
        "before the first",
        "never",
        "first time",
        "dip",
        "nan",
        "nan first",
        "none",
    ],
)
def test_the_time_to_a_target_is_interpolated_linearly(points, target, seconds):
    assert seconds_to(evaluated(*points), target) == pytest.approx(seconds)


def test_the_time_to_a_target_where_lower_is_better():
    run = evaluated((1, 4.0), (3, 2.0), (5, 1.0), metric="test_loss", better="lower")
    assert seconds_to(run, 3.0) == pytest.approx(2.0)
    assert seconds_to(run, 0.5) is None


def test_times_to_the_target_are_means_over_the_seeds_that_reach_it():
    runs = [a_run("dense", seed, 0.9) for seed in (1, 2)]
    runs += [a_run("fp16", 1, 0.9, 10.0), a_run("fp16", 2, 0.5, 10.0)]
    section = section_of(runs, 0.81)
    dense, half = section.entries
    # Accuracy grows linearly from 0.225 at a quarter of the time: 0.81 is reached at 0.9 of the time.
    assert section.to_target(dense).seconds.values == pytest.approx((18.0, 18.0))
    reached = section.to_target(half)
    assert (reached.by, reached.runs, reached.by_all) == (1, 2, False)
    assert reached.seconds.mean == pytest.approx(9.0)
    assert section.target_speedup(half) is None, "one seed did not reach it"
    assert section.step_speedup(half) == pytest.approx(2.0)


def test_speedups_over_dense():
    section = section_of(comparison(), 0.5)
    dense, half, powersgd, tiny = section.entries
    assert section.step_speedup(powersgd) == pytest.approx(2.0)
    assert section.target_speedup(powersgd) == pytest.approx(2.0)
    assert section.target_speedup(half) == pytest.approx(1.25)
    assert section.target_speedup(dense) == 1
    # A step is 20 s / 12.5 s faster, but the speedup to the target is lower.
    assert section.step_speedup(tiny) == pytest.approx(1.6)
    assert 1 < section.target_speedup(tiny) < 1.6


def test_without_dense_there_is_no_speedup():
    section = section_of([a_run("fp16")])
    assert section.step_speedup(section.entries[0]) is None
    assert section.target_speedup(section.entries[0]) is None


def test_seeds_that_only_other_methods_have_are_missing():
    section = section_of([a_run(seed=1), a_run(seed=2), a_run("fp16", seed=1)])
    assert section.missing() == {"fp16": [2]}


def test_replicas_differ_if_all_runs_of_a_method_have_a_consensus_distance():
    section = section_of([a_run(), decentralized_run("dpsgd", 0.8), decentralized_run("dpsgd", 0.9, seed=2)])
    dense, gossip = section.entries
    assert section.replicas_differ
    assert (dense.worst_replica, dense.consensus_distance) == (None, None)
    assert gossip.worst_replica.mean == pytest.approx(0.85)
    assert gossip.consensus_distance.mean == pytest.approx(0.01)
    assert not section_of(comparison()).replicas_differ
    assert section_of([decentralized_run("dpsgd"), a_run("dpsgd", seed=2)]).entries[0].consensus_distance is None
