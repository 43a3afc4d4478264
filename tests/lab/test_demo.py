import io

from rich.console import Console

from thinwire.lab import demo, links
from thinwire.lab.runs import Run

FEW = ["dense", "fp16", "topk", "powersgd"]


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
    dense, fp16, topk, powersgd = runs
    assert (dense.ratio, fp16.ratio) == (1, 2)
    assert topk.ratio > 50
    assert powersgd.ratio > 10


def test_without_links_the_demo_models_them_and_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "METHODS", ["fp16"])
    monkeypatch.setattr(links, "possible", lambda: "this is an island")
    console = Console(record=True, width=300, file=io.StringIO())
    (run,), page = demo.run(tmp_path, console, ranks=2, steps=2)
    assert run.modelled
    assert "The link is modelled, as none can be made here: this is an island." in console.export_text()
    assert "modelled" in page.read_text()


def test_a_demo_starts_afresh(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "METHODS", ["fp16"])
    monkeypatch.setattr(links, "possible", lambda: "this is an island")
    for steps in (2, 3):
        (run,), _ = demo.run(tmp_path, Console(quiet=True), ranks=2, steps=steps)
        assert run.steps == steps
