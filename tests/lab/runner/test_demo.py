import io
from pathlib import Path

import pytest
from rich.console import Console

from thinwire.lab import links
from thinwire.lab.recording.runs import Run
from thinwire.lab.runner import demo

FEW = ["dense", "fp16", "topk"]


def ran(folder: Path, methods: list[str], steps: int, **patched: object) -> tuple[list[Run], str, str]:
    """The runs of a short demo, its output, and its page."""
    console = Console(record=True, width=300, file=io.StringIO())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "METHODS", methods)
        for name, value in patched.items():
            patch.setattr(links, name, value)
        runs, page = demo.run(folder, console, ranks=2, steps=steps)
    assert page == folder / "report.html"
    return runs, console.export_text(), page.read_text()


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The folder of a demo, its runs, its output, and its run files."""
    folder = tmp_path_factory.mktemp("demo")
    runs, output, _ = ran(folder, FEW, steps=12)
    files = [Run.load(folder / name / "seed-1" / "run.json") for name in FEW]
    return folder, runs, output, files


def test_the_demo_trains_its_methods_in_real_processes_and_writes_a_report(first):
    folder, runs, output, files = first
    assert any(str(folder / "report.html") in line for line in output.splitlines()[:3]), (
        "the output starts with the path of the report"
    )
    assert files == runs
    real = links.possible() is None
    for run in runs:
        assert (run.ranks, run.link, run.modeled, "wire" in run.bytes) == (2, "20mbit", not real, real)
        assert [point["step"] for point in run.history] == list(range(1, 13))
        assert run.history[-1]["loss"] < run.history[0]["loss"], "the loss falls"
        assert run.history[-1]["payload_bytes"] == run.bytes["payload"]
        assert run.ratio == run.bytes["dense"] / run.bytes["payload"]
    dense, fp16, topk = runs
    assert (dense.ratio, fp16.ratio) == (1, 2)
    assert topk.ratio > 50


def test_a_demo_repeats_its_runs_and_models_links_that_cannot_be_created(first):
    folder, (_, before, _), *_ = first
    (run,), output, page = ran(folder, ["fp16"], steps=2, possible=lambda: "this is an island")
    assert (before.label, run.label) == ("fp16", "fp16")
    assert (before.steps, run.steps) == (12, 2)
    assert run.modeled
    assert "The link is modeled, as none can be created here: this is an island." in output
    assert "modeled" in page
