import io

import pytest
from rich.console import Console

from thinwire.lab import demo, links
from thinwire.lab.runs import Run

FEW = ["dense", "fp16", "topk"]


def test_the_demo_trains_its_methods_in_real_processes_and_leaves_a_report(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "METHODS", FEW)
    console = Console(record=True, width=200, file=io.StringIO())
    runs, page = demo.run(tmp_path, console, ranks=2, steps=22)
    first = console.export_text().splitlines()
    assert any(str(page) in line for line in first[:3]), "it opens with where the report will be"
    assert page == tmp_path / "report.html"
    assert page.exists()
    real = links.possible() is None
    for name, run in zip(FEW, runs, strict=True):
        assert Run.load(tmp_path / name / "seed-1" / "run.json") == run
        assert (run.ranks, run.link, run.modelled, "wire" in run.bytes) == (2, "20mbit", not real, real)
        assert [point["step"] for point in run.history] == list(range(1, 23))
        assert run.history[-1]["loss"] < run.history[0]["loss"], "it learns"
        assert run.history[-1]["payload_bytes"] == run.bytes["payload"]
        assert run.ratio == run.bytes["dense"] / run.bytes["payload"]
    dense, fp16, topk = runs
    assert (dense.ratio, fp16.ratio) == (1, 2)
    assert topk.ratio > 50


def without_links(folder, console, steps):
    """A demo of one method where no links can be made."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "METHODS", ["fp16"])
        patch.setattr(links, "possible", lambda: "this is an island")
        (run,), page = demo.run(folder, console, ranks=2, steps=steps)
    return run, page


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The folder of a short demo, its run, its page, and what it said."""
    folder, console = tmp_path_factory.mktemp("demo"), Console(record=True, width=300, file=io.StringIO())
    run, page = without_links(folder, console, steps=2)
    return folder, run, page.read_text(), console.export_text()


def test_without_links_the_demo_models_them_and_says_why(first):
    _, run, page, said = first
    assert run.modelled
    assert "The link is modelled, as none can be made here: this is an island." in said
    assert "modelled" in page


def test_a_demo_starts_afresh(first):
    folder, before, _, _ = first
    assert before.steps == 2
    assert without_links(folder, Console(quiet=True), steps=3)[0].steps == 3
