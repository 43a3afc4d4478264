import math

import pytest

from tests.lab.report.parsed import Page
from tests.lab.report.sample_runs import a_run
from tests.lab.report.test_report_table import printed
from thinwire.lab.report.page import page as page_of
from thinwire.lab.report.summary import sections


def tried(scale, seed=1, validation=None, accuracy=0.9, label="topk", **changes):
    """A run with `scale` times the workload's learning rate; `validation` is its best validation accuracy."""
    run = a_run(label, seed, accuracy, plan={"lr_scale": scale}, **changes)
    if validation is not None:
        run.metrics["validation_accuracy"] = validation
    return run


def entry_of(runs):
    (section,) = sections(runs)
    (entry,) = section.entries
    return entry


def test_the_rate_with_the_best_validation_metric_is_used_with_all_its_seeds():
    runs = [tried(0.3, 1, 0.7, accuracy=0.95), tried(1.0, 1, 0.8, accuracy=0.9), tried(3.0, 1, 0.6)]
    runs += [tried(1.0, seed, 0.5, accuracy=0.6) for seed in (2, 3)]
    entry = entry_of(runs)
    assert entry.lr_scale == 1.0, "by validation, not by test, and on the seed that all rates have"
    assert [run.seed for run in entry.runs] == [1, 2, 3]
    assert entry.metric.mean == pytest.approx(0.7)
    assert [(rate.scale, rate.validation) for rate in entry.tried] == [(0.3, 0.7), (1.0, 0.8), (3.0, 0.6)]


def test_rates_are_compared_by_their_mean_over_shared_seeds():
    runs = [tried(0.3, 1, 0.9), tried(0.3, 2, 0.5), tried(3.0, 1, 0.8), tried(3.0, 2, 0.8), tried(3.0, 3, 0.1)]
    entry = entry_of(runs)
    assert entry.lr_scale == 3.0
    assert [rate.validation for rate in entry.tried] == pytest.approx([0.7, 0.8])


def test_where_lower_is_better_the_lowest_validation_metric_is_best():
    changes = {"metric": "test_loss", "better": "lower"}
    runs = [tried(scale, **changes) for scale in (0.3, 1.0)]
    for run, validation in zip(runs, (0.2, 0.4), strict=True):
        run.metrics["validation_loss"] = validation
    assert entry_of(runs).lr_scale == 0.3


@pytest.mark.parametrize("diverged", [math.nan, math.inf, -math.inf])
def test_a_rate_that_diverged_is_never_best(diverged):
    assert entry_of([tried(1.0, validation=diverged), tried(3.0, validation=0.1)]).lr_scale == 3.0


@pytest.mark.parametrize(
    ("runs", "scale"),
    [
        ([tried(1.0, validation=0.5), tried(0.3, validation=0.5), tried(0.3, 2, 0.5)], 0.3),
        ([tried(0.1, validation=0.5), tried(3.0, validation=0.5), tried(0.3, validation=0.5)], 3.0),
        ([tried(1.0), tried(0.3), tried(0.3, 2)], 0.3),
        ([tried(1.0), tried(0.3, accuracy=0.99)], 1.0),
        ([tried(1.0, 1, 0.5), tried(0.3, 2, 0.9)], 1.0),
        ([tried(1.0, validation=0.5), tried(0.3)], 1.0),
    ],
    ids=[
        "tie",
        "tie of equal seeds",
        "no validation",
        "no validation, one seed",
        "no shared seed",
        "not all validated",
    ],
)
def test_without_a_best_validation_metric_the_rate_with_most_seeds_is_used_then_the_nearest_to_1(runs, scale):
    assert entry_of(runs).lr_scale == scale


def test_methods_and_tasks_are_tuned_separately():
    runs = [tried(0.3, validation=0.9), tried(1.0, validation=0.5)]
    runs += [tried(0.3, validation=0.5, label="dense"), tried(1.0, validation=0.9, label="dense")]
    (section,) = sections(runs)
    assert {entry.label: entry.lr_scale for entry in section.entries} == {"topk": 0.3, "dense": 1.0}
    assert len(sections([tried(0.3), tried(1.0, ranks=8)])) == 2


def test_old_runs_without_a_plan_have_the_workloads_own_rate():
    entry = entry_of([a_run(plan={}), a_run(seed=2)])
    assert (entry.lr_scale, entry.tried) == (1.0, ())


def test_the_page_has_a_table_of_the_rates_and_the_factor_of_each_method():
    runs = [tried(0.3, 1, 0.8, 0.85), tried(1.0, 1, 0.7, 0.9), tried(0.3, 2, 0.82, 0.87)]
    page = Page(page_of(sections([a_run("dense"), *runs])))
    figures, rates = page.tables
    cells = {row[0]: dict(zip(figures[0], row, strict=True)) for row in figures[1:]}
    assert (cells["dense"]["lr"], cells["topk"]["lr"]) == ("1x", "0.3x")
    assert cells["topk"]["accuracy"].startswith("86.0%"), "other rates are not in the mean"
    assert rates == [
        ["method", "lr", "validation accuracy", "test accuracy", "seeds", "chosen"],
        ["topk", "0.3x", "80.0%", "85.0%", "1, 2", "yes"],
        ["topk", "1x", "70.0%", "90.0%", "1", ""],
    ]
    assert "Learning rates tried" in page.text
    assert "3 training runs and 1 with other learning rates" in page.text


def test_without_a_validation_metric_its_cells_have_a_dash():
    (_, rates) = Page(page_of(sections([tried(0.3), tried(1.0)]))).tables
    assert [row[2] for row in rates[1:]] == ["-", "-"]


def test_scaled_but_not_tuned_runs_have_a_factor_and_no_table():
    page = Page(page_of(sections([a_run("dense"), tried(0.3)])))
    (figures,) = page.tables
    assert [row[figures[0].index("lr")] for row in figures[1:]] == ["1x", "0.3x"]
    assert "Learning rates tried" not in page.text


def test_without_scaled_rates_learning_rates_are_not_mentioned():
    page = Page(page_of(sections([a_run("dense"), tried(1.0)])))
    assert "lr" not in page.tables[0][0]
    assert "earning rate" not in page.text
    assert "earning rate" not in printed([a_run("dense"), tried(1.0)])


def test_the_terminal_has_a_line_on_learning_rates():
    runs = [a_run("dense"), tried(0.3, validation=0.9), tried(1.0, validation=0.5), tried(3.0, label="sign")]
    text = " ".join(printed(runs).split())
    assert "Learning rates, as a factor of the workload's: 0.3x for topk; 3x for sign (tried: 0.3x, 1x)." in text
    assert " lr " not in text


def test_a_run_in_two_folders_counts_once():
    plan = {"method": "dense", "seed": 1, "lr_scale": 1.0}
    twice = [a_run("dense", seed=1, plan=plan), a_run("dense", seed=1, plan=plan)]
    (section,) = sections([*twice, a_run("dense", seed=2, plan=plan | {"seed": 2})])
    assert [run.seed for run in section.entries[0].runs] == [1, 2]
