import io

import pytest
from rich.console import Console

from tests.lab.report.samples import a_run, comparison
from thinwire.lab import report


def printed(runs, target=None, width=80):
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(report.table(runs, target))
    return console.export_text()


def row_of(text, label):
    (row,) = (line.split() for line in text.splitlines() if line.split()[:1] == [label])
    return row


def test_the_table_fits_a_terminal_and_tells_each_method():
    text = printed(comparison())
    assert "…" not in text, "nothing is cut off at 80 columns"
    assert "Smaller: the gradients' bytes over the payload's." in " ".join(text.split())
    assert row_of(text, "dense")[1:3] == ["90.0%", "±1.0"]
    powersgd = " ".join(row_of(text, "powersgd"))
    assert "25.0 kB 37.5 kB 40.0x 100.0 ms" in powersgd
    assert "Means over 3 seeds" in text
    assert "Target: test accuracy of 89.1% or more." in text
    assert "modelled" not in text.lower()


def test_the_speedup_is_to_the_target_where_all_reach_it_and_else_per_step():
    assert row_of(printed(comparison(), target=0.5), "fp16")[-1] == "1.25x"
    unreachable = printed(comparison(), target=0.99)
    assert "step" in unreachable.splitlines()[2]
    assert "2.00x" in row_of(unreachable, "powersgd")
    assert "not" in row_of(unreachable, "powersgd")


def test_seeds_that_did_not_get_there_are_told():
    runs = [a_run("dense", 1), a_run("dense", 2), a_run("fp16", 1), a_run("fp16", 2, accuracy=0.5)]
    assert "(1 of 2)" in printed(runs)


def test_other_metrics_leave_the_figures_whole():
    runs = [
        a_run(seed=seed, metric="perplexity", better="lower", metrics={"perplexity": 1234.5 + seed}, evaluated=False)
        for seed in (1, 2)
    ]
    text = printed(runs)
    assert max(map(len, text.splitlines())) <= 80
    assert "1236.000" in text
    assert "±0.707" in text
    assert "200.0 ms" in text


def test_modelled_times_are_called_so():
    text = printed([a_run(modelled=True)])
    heading, *rest = text.strip().splitlines()
    assert heading.strip() == "digits-cnn, 4 ranks, processes, 100 Mbit/s (modelled)"
    head = " ".join(rest[:4])
    assert head.count("modelled") == 3, "time per step and to target, and how these compare"
    assert "Modelled: the time on the link was computed" in text


def test_simulated_times_are_said_to_hold_no_exchange():
    assert "no time is counted for the exchange" in printed([a_run(transport="simulated", link=None)])


def test_tasks_have_tables_of_their_own():
    text = printed([a_run(), a_run(ranks=8)])
    assert "digits-cnn, 4 ranks" in text
    assert "digits-cnn, 8 ranks" in text


@pytest.mark.parametrize("label", ["[bold]x[/]", "[/]", "Choose(When(Sign(), names=['a[0]']))"])
def test_labels_are_no_markup(label):
    assert label in printed([a_run(label)], width=200)


def test_a_long_label_leaves_the_figures_whole():
    text = printed([a_run("dense"), a_run("Feedback(Chain(TopK(0.001), Quantize(8), Entropy()))", ratio=1250.0)])
    assert "…" not in text
    assert "1250.0x" in text
