import json
import re
from statistics import mean, stdev

import pytest

from tests.lab.report.parsed import Page
from tests.lab.report.sample_runs import a_run, comparison, differing, saved
from thinwire.lab import report
from thinwire.lab.report.page import page as page_of
from thinwire.lab.report.summary import sections

PLOTS = (
    "metric-time",
    "metric-bytes",
    "loss-time",
    "loss-bytes",
    "metric-examples",
    "loss-examples",
    "pareto",
    "time",
    "traffic",
    "kinds",
)


def written(folder, runs, target=None):
    path = report.write(saved(folder, runs), target)
    return path.read_text("utf-8")


def shown(runs, target=None):
    return page_of(sections(runs, target))


@pytest.fixture(scope="module")
def text():
    return shown(comparison())


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


def test_the_page_and_the_picture_are_left_beside_the_runs(tmp_path):
    path = report.write(saved(tmp_path, comparison()))
    assert path == tmp_path / "report.html"
    assert (tmp_path / report.PICTURE).read_bytes().startswith(b"\x89PNG")
    assert report.write(tmp_path) == path, "what was written is no run"


def test_the_page_needs_nothing_but_itself(text, page):
    assert [reference for reference in page.references if not reference.startswith("#")] == []
    assert not re.search(r"url\(|@import|fetch\(|XMLHttpRequest|https?:|//\w+\.\w", text)


def test_the_table_tells_the_figures_of_the_run_files(tmp_path):
    written(tmp_path, comparison())
    stored = [json.loads(path.read_text()) for path in tmp_path.rglob("run.json")]
    (table,) = Page((tmp_path / "report.html").read_text("utf-8")).tables
    head, *rows = table
    assert len(rows) == 4
    for row in rows:
        told = dict(zip(head, row, strict=True))
        runs = [run for run in stored if run["label"] == told["method"]]
        accuracies = [run["metrics"]["test_accuracy"] for run in runs]
        assert told["accuracy"] == f"{100 * mean(accuracies):.1f}% ± {100 * stdev(accuracies):.1f}"
        assert told["seeds"] == "3"
        for column in ("payload", "link", "wire"):
            assert told[f"{column} / step"] == report.human(mean(run["bytes"][column] / run["steps"] for run in runs))
        assert told["smaller"] == f"{mean(run['bytes']['dense'] / run['bytes']['payload'] for run in runs):.1f}x"
        seconds = mean(run["seconds"]["total"] for run in runs)
        assert told["training"] == f"{seconds:.1f} s"
        assert told["time / step"] == f"{1000 * seconds / 100:.1f} ms"
        assert told["step vs dense"] == f"{20 / seconds:.2f}x"


def test_times_to_the_target_are_those_on_the_curves(page):
    (table,) = page.tables
    told = {row[0]: dict(zip(table[0], row, strict=True)) for row in table[1:]}
    # Target 0.891. Seeds end at 0.90, 0.91 and 0.89: the last never gets there.
    reached = mean([0.891 / 0.90, 0.891 / 0.91])
    assert told["dense"]["to target"] == f"{20 * reached:.1f} s (2 of 3)"
    assert told["powersgd"]["to target"] == f"{10 * reached:.2f} s (2 of 3)"
    assert told["<b>&thin"]["to target"] == "not reached"
    assert {row["target vs dense"] for row in told.values()} == {"-"}


def test_every_plot_is_there_and_drawn_for_every_method(page):
    assert list(page.figures) == [f"task-1-{plot}" for plot in PLOTS]
    for name, elements in page.figures.items():
        drawn = [element for element in elements if element in ("polyline", "rect", "path", "circle")]
        assert len(drawn) >= 4, name


def test_runs_from_before_batches_were_counted_have_no_plots_against_examples():
    page = Page(shown([a_run("dense", batch=0), a_run("fp16", batch=0)]))
    assert list(page.figures) == [f"task-1-{plot}" for plot in PLOTS if "examples" not in plot]


def test_names_are_escaped(text, page):
    assert "<b>&thin" not in text
    assert "<little>" not in text
    assert "it says <little>" in page.text
    assert page.text.count("<b>&thin") >= 8, "in the table, the legend and the plots"


def test_what_is_written_is_the_page_whatever_the_order_of_the_files(tmp_path, text):
    assert written(tmp_path, comparison()[::-1]) == text


def test_what_was_run_on_what_is_told_and_how_to_repeat_it(page):
    for said in (
        "digits-cnn, 4 ranks, processes, 100 Mbit/s",
        "100 steps, batches of 128 examples over all ranks, 250,000 parameters, budget small, seeds 1, 2, 3.",
        "On processor Abacus & Sons, cores 2.",
        "0123abc",
        "ErrorFeedback(PowerSGD(4))",
        "thinwire train --method 'powersgd' --seed 1",
        "--seed 2, 3",
        "target 89.1%",
    ):
        assert said in page.text
    assert "modeled" not in page.text
    assert "not there yet" not in page.text


def test_modelled_times_are_called_so_wherever_they_are():
    runs = [a_run("dense", modeled=True), a_run("fp16", modeled=True)]
    page = Page(shown(runs))
    assert [name for name in page.tables[0][0] if "modeled" in name] == [
        "training modeled",
        "time / step modeled",
        "step vs dense modeled",
        "to target modeled",
        "target vs dense modeled",
    ]
    assert page.text.count("training time, modeled") == 2
    assert "time per step, modeled" in page.text
    assert "Times on the link are modeled" in page.text
    assert "the time on the link was computed from the bytes" in page.text


def test_a_comparison_in_progress_is_shown_with_what_is_missing():
    runs = [a_run("dense", 1), a_run("dense", 2), a_run("fp16", 1)]
    page = Page(shown(runs))
    assert "fp16 : not there yet: seed 2" in page.text
    assert [row[2] for row in page.tables[0][1:]] == ["2", "1"]


def test_a_run_that_is_there_twice_is_told():
    page = Page(shown([a_run("dense", 1), a_run("dense", 1), a_run("dense", 2)]))
    assert "dense : seed 1 is there 2 times" in page.text
    assert "seed 2 is there" not in page.text


def test_tasks_have_sections_plots_and_colours_in_common():
    runs = [a_run("dense"), a_run("fp16"), a_run("powersgd", link="1gbit"), a_run("fp16", link="1gbit")]
    text = shown(runs)
    page = Page(text)
    assert len(page.tables) == 2
    assert list(page.figures) == [f"task-{task}-{plot}" for task in (1, 2) for plot in PLOTS]
    assert page.references == ["#task-1", "#task-2"]
    colors = set(re.findall(r'data-series="fp16" style="--c:([^"]*)"', text))
    assert len(colors) == 1


def test_dense_is_drawn_in_ink(text):
    assert set(re.findall(r'data-series="dense" style="--c:([^"]*)"', text)) == {"var(--ink)"}


@pytest.mark.parametrize(
    "runs",
    [
        [a_run("dense", steps=1)],
        [a_run("fp16", evaluated=False, kinds={}, machine={}, command="", bytes={"dense": 9, "payload": 3, "link": 4})],
        [a_run("dense", history=[])],
        [a_run("dense", metrics={"test_accuracy": float("nan")}, evaluated=False)],
        [a_run("dense", history=[{"step": 1, "loss": float("nan"), "payload_bytes": 1, "seconds": 1.0}])],
        [a_run("dense", history=[{"step": 1, "loss": 0.0, "payload_bytes": 0, "seconds": 0.0}])],
        [a_run("dense", metric="test_loss", better="lower"), a_run("fp16", metric="test_loss", better="lower")],
        [a_run("dense", ranks=1, bytes={"dense": 9, "payload": 9, "link": 0}, link=None)],
        [a_run(f"method {i}", ratio=float(2 + i)) for i in range(20)],
    ],
    ids=["one step", "old", "no history", "nan metric", "nan loss", "zeros", "lower", "one rank", "many methods"],
)
def test_odd_runs_are_shown_too(tmp_path, runs):
    page = Page(written(tmp_path, runs))
    assert list(page.figures) == [f"task-1-{plot}" for plot in PLOTS]
    assert len(page.tables[0]) == 1 + len(runs)


def test_replicas_that_differ_have_columns_notes_a_plot_and_their_links():
    runs = [a_run("dense", seed) for seed in (1, 2)]
    runs += [differing("dpsgd", 0.85 + seed / 100, seed=seed) for seed in (1, 2)]
    text = shown(runs)
    page = Page(text)
    told = {row[0]: dict(zip(page.tables[0][0], row, strict=True)) for row in page.tables[0][1:]}
    assert (told["dpsgd"]["worst"], told["dpsgd"]["apart"]) == ("86.5% ± 0.7", "1.00%")
    assert (told["dense"]["worst"], told["dense"]["apart"]) == ("-", "-")
    for said in (
        "test accuracy is that of their mean",
        "the test accuracy of the worst replica at the end",
        "how far replicas are from their mean at the end",
        "Who speaks with whom",
        "dpsgd : rank 0 speaks with ranks 1 and 3: 5.0 kB a step to each, as much from each.",
    ):
        assert said in page.text.replace(" worst : ", " ").replace(" apart : ", " ")
    assert list(page.figures) == ["task-1-" + plot for plot in (*PLOTS[:6], "apart", *PLOTS[6:])]
    figure = re.search(r'<figure id="task-1-apart">.*?</figure>', text, re.DOTALL)[0]
    assert 'role="img" aria-label="How far replicas are apart"' in figure
    assert set(re.findall(r'data-series="([^"]*)"', figure)) == {"dpsgd"}, "those of dense are alike"


def test_replicas_that_are_alike_leave_the_page_as_it_is(page):
    assert "replica" not in page.text
    assert "Who speaks" not in page.text


def test_replicas_that_came_together_have_no_plot():
    page = Page(shown([differing("dpsgd", apart=(0.0, 0.0, 0.0, 0.0))]))
    assert list(page.figures) == [f"task-1-{plot}" for plot in PLOTS]
    assert "0.00%" in page.tables[0][1]


def test_a_given_target_is_used():
    assert "target 45.0%" in Page(shown([a_run()], target=0.45)).text


def test_drawing_is_possible_here():
    report.check_drawing()


def test_without_matplotlib_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setattr("thinwire.lab.report.picture.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"thinwire\[lab\]"):
        report.check_drawing()


def test_the_picture_grows_with_its_legend(tmp_path):
    def height(methods):
        runs = [
            a_run(f"ErrorFeedback(TopK({i / 1000})), with a name that takes a row of its own") for i in range(methods)
        ]
        report.write(saved(tmp_path / str(methods), [a_run(), *runs]))
        return int.from_bytes((tmp_path / str(methods) / report.PICTURE).read_bytes()[20:24])  # as PNG has it

    assert height(2) < height(24) - 500
