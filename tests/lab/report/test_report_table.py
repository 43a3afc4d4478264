import io

import pytest
from rich.console import Console

from tests.lab.report.sample_runs import a_run, comparison, decentralized_run
from thinwire.lab import report


def printed(runs, target=None, width=80):
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(report.table(runs, target))
    return console.export_text()


def row_of(text, label):
    (row,) = (line.split() for line in text.splitlines() if line.split()[:1] == [label])
    return row


def test_the_table_fits_80_columns_and_has_a_row_per_method():
    text = printed(comparison())
    assert "…" not in text, "nothing is cut off at 80 columns"
    assert "Ratio: the gradients' bytes over the payload's." in " ".join(text.split())
    assert row_of(text, "dense")[1:3] == ["90.0%", "±1.0"]
    powersgd = " ".join(row_of(text, "powersgd"))
    assert "25.0 kB 37.5 kB 40.0x 100.0 ms" in powersgd
    assert "Means over 3 seeds" in text
    assert "Target: test accuracy of 89.1% or more." in text
    assert "modeled" not in text.lower()


def test_the_speedup_is_to_the_target_if_all_reach_it_or_else_per_step():
    assert row_of(printed(comparison(), target=0.5), "fp16")[-1] == "1.25x"
    unreachable = printed(comparison(), target=0.99)
    assert "step" in unreachable.splitlines()[2]
    assert "2.00x" in row_of(unreachable, "powersgd")
    assert "not" in row_of(unreachable, "powersgd")


def test_the_ratio_of_learned_codes_is_a_column():
    learned = {"errors": [[10, 0.5]], "learning": [[1, 50]], "coded": {"steps": 50, "dense": 10_000, "payload": 40}}
    text = printed([a_run("dense"), a_run("lgc", learned=learned)])
    assert "coded" in text
    assert "250.0x" in row_of(text, "lgc")
    never = learned | {"coded": {"steps": 0, "dense": 0, "payload": 0}}
    assert "250.0x" not in printed([a_run("dense"), a_run("lgc", learned=never)])
    assert "coded" not in printed([a_run("dense"), a_run("fp16")])


def test_the_number_of_seeds_that_reach_the_target_is_shown():
    runs = [a_run("dense", 1), a_run("dense", 2), a_run("fp16", 1), a_run("fp16", 2, accuracy=0.5)]
    assert "(1 of 2)" in printed(runs)


def test_other_metrics_do_not_truncate_the_figures():
    runs = [
        a_run(seed=seed, metric="perplexity", better="lower", metrics={"perplexity": 1234.5 + seed}, evaluated=False)
        for seed in (1, 2)
    ]
    text = printed(runs)
    assert max(map(len, text.splitlines())) <= 80
    assert "1236.000" in text
    assert "±0.707" in text
    assert "200.0 ms" in text


def test_modeled_times_are_labeled():
    text = printed([a_run(modeled=True)])
    heading, *rest = text.strip().splitlines()
    assert heading.strip() == "digits-cnn, 4 ranks, processes, 100 Mbit/s (modeled)"
    head = " ".join(rest[:4])
    assert head.count("modeled") == 3, "time per step and to target, and how these compare"
    assert "Modeled: the time on the link was computed" in text


def test_a_note_says_that_simulated_times_exclude_the_exchange():
    assert "no time is counted for the exchange" in printed([a_run(transport="simulated", link=None)])


def test_every_task_has_a_table():
    text = printed([a_run(), a_run(ranks=8)])
    assert "digits-cnn, 4 ranks" in text
    assert "digits-cnn, 8 ranks" in text


@pytest.mark.parametrize("label", ["[bold]x[/]", "[/]", "Choose(When(Sign(), names=['a[0]']))"])
def test_labels_are_not_interpreted_as_markup(label):
    assert label in printed([a_run(label)], width=200)


def test_a_long_label_does_not_truncate_the_figures():
    text = printed([a_run("dense"), a_run("ErrorFeedback(Chain(TopK(0.001), Quantize(8), Entropy()))", ratio=1250.0)])
    assert "…" not in text
    assert "1250.0x" in text


def test_a_straggler_is_in_the_heading():
    assert "digits-cnn, 4 ranks, processes, 100 Mbit/s, rank 1 is 3x slower" in printed([a_run(straggler="1:3")])


def gossiping(**changes):
    seeds = (1, 2)
    runs = [a_run("dense", seed, seconds=2000.0, **changes) for seed in seeds]
    runs += [decentralized_run("powergossip", 0.85 + seed / 100, seed=seed, ratio=40.0, **changes) for seed in seeds]
    return [*runs, *(decentralized_run("dpsgd", 0.9, (1e-3, 1e-4, 1e-5, 1e-6), seed=seed, **changes) for seed in seeds)]


def test_differing_replicas_have_columns_that_fit_80_columns():
    for changes in ({}, {"modeled": True}, {"metric": "test_loss", "better": "lower"}):
        text = printed(gossiping(**changes))
        assert max(map(len, text.splitlines())) <= 80
        assert "…" not in text, "nothing is cut off at 80 columns"
    text = printed(gossiping())
    above, head = text.splitlines()[2:4]
    assert above.split()[0] == "consensus"
    assert head.split()[:4] == ["method", "accuracy", "worst", "distance"]
    assert row_of(text, "powergossip")[1:5] == ["90.0%", "±0.0", "86.5%", "1.00%"]
    assert row_of(text, "dpsgd")[3:5] == ["90.0%", "<0.01%"]
    assert row_of(text, "dense")[3:5] == ["-", "-"]
    words = " ".join(text.split())
    assert "Where replicas differ, test accuracy is that of their mean. Worst: that of the worst replica." in words
    assert "Target: test accuracy" in words
    assert "Target" not in printed(gossiping(), target=0.99), "no column is about it"


def test_equal_replicas_are_not_mentioned_in_the_table():
    text = printed(comparison())
    assert "replica" not in text
    assert "consensus" not in text


def test_without_dense_the_time_to_the_target_is_shown():
    text = printed([run for run in gossiping() if run.label != "dense"])
    assert "target" in next(line for line in text.splitlines() if "method" in line)
    assert max(map(len, text.splitlines())) <= 80


def test_with_a_parameter_server_the_bytes_of_a_worker_are_a_column():
    with_server = [
        a_run("server", seed, server={"rank": 0, "link": 150_000_000, "worker": 50_000_000}) for seed in (1, 2, 3)
    ]
    text = printed([*comparison(), *with_server])
    assert "…" not in text, "nothing is cut off at 80 columns"
    assert "1.5 MB 500 kB" in " ".join(row_of(text, "server"))
    assert row_of(text, "fp16").count("-") == 1
    assert "link is that of the server, and worker that of the busiest other rank." in " ".join(text.split())
    assert "worker" not in printed(comparison())
