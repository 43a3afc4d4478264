import pytest
from rich.console import Console

from thinwire.lab import demo
from thinwire.lab.runs import Run


def test_the_demo_trains_every_method_in_real_processes_and_leaves_its_files(tmp_path):
    steps = 22
    runs = demo.run(tmp_path, Console(quiet=True), ranks=2, steps=steps)
    assert {"dense", "fp16", "topk", "powersgd"} <= runs.keys()
    assert (tmp_path / "report.html").exists()
    assert (tmp_path / "loss-against-bytes.png").exists()
    for name, run in runs.items():
        assert Run.load(tmp_path / name / "run.json") == run
        assert run.ranks == 2
        assert [point["step"] for point in run.history] == list(range(1, steps + 1))
        assert run.history[-1]["loss"] < run.history[0]["loss"], "it learns"
        assert run.history[-1]["payload_bytes"] == run.bytes["payload"]
        assert run.ratio == run.bytes["dense"] / run.bytes["payload"]
    assert runs["dense"].ratio == 1
    assert runs["fp16"].ratio == 2
    assert runs["topk"].ratio > 50
    assert runs["powersgd"].ratio > 20


def test_a_failure_in_the_processes_is_told_with_what_they_said(tmp_path):
    plan = {"methods": {"odd": "NoSuchMethod()"}, "steps": 1, "seed": 0, "folder": str(tmp_path)}
    with pytest.raises(demo.DemoError, match="NoSuchMethod"):
        list(demo.events(plan, ranks=1))
