import json
import subprocess
import sys

import pytest

from tests.lab.sample_tasks import called
from thinwire import parse
from thinwire.cli import main
from thinwire.lab.tasks.workloads import WORKLOADS
from thinwire.methods import METHODS


def test_methods_lists_every_short_name_with_its_notation(capsys):
    assert main(["methods", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed.keys() == METHODS.keys()
    assert all(parse(entry["notation"]) == METHODS[name].built for name, entry in listed.items())
    assert main(["methods"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in METHODS)


def test_size_prints_the_same_figures_as_text_and_as_json(capsys):
    assert main(["size", "powersgd", "--model", "lenet", "--ranks", "2", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["elements"] == 61_706
    assert printed["ratio"] == pytest.approx(printed["dense"] / printed["payload"])
    assert main(["size", "powersgd", "--model", "lenet", "--ranks", "2"]) == 0
    shown = capsys.readouterr().out
    assert f"{printed['ratio']:.1f}x" in shown
    assert "10 Gbit/s" in shown


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["size", "topkk", "--model", "lenet"], "did you mean 'topk'"),
        (["size", "topk", "--model", "resnet5"], "did you mean 'resnet50'"),
        (["size", "ErrorFeedback(TopKK(0.1))", "--model", "lenet"], "^^^^^"),
        (["size", "TopK(7)", "--model", "lenet"], "between 0 and 1"),
        (["size", "topk", "--model", "lenet", "--ranks", "1"], "2 ranks or more"),
        (["train", "--method", "topk", "--out", "nowhere"], "needs a workload"),
        (["train", "--workload", "digits-cnn", "--out", "nowhere"], "needs a method"),
        (["train", "--workload", "digits-cnn", "--method", "topk"], "needs an output folder: --out"),
        (["train", "--workload", "digit-cnn", "--method", "topk", "--out", "nowhere"], "did you mean 'digits-cnn'"),
        (["train", "--workload", "digits-cnn", "--method", "topkk", "--out", "nowhere"], "did you mean 'topk'"),
        (["train", "--file", "nowhere.toml"], "nowhere.toml cannot be read"),
        (["compare", "--workload", "digits-cnn", "--out", "nowhere"], "needs methods"),
        (["report", "nowhere"], "no runs in nowhere"),
        (["link", "check", "wet string"], "'wet string' is not a link"),
        (["scale", "topk", "--model", "resnet5"], "did you mean 'resnet50'"),
        (["topology", "rign", "--ranks", "4"], "did you mean 'ring'"),
        (["topology", "Exponental(2)", "--ranks", "4"], "did you mean Exponential?"),
        (["topology", "hypercube", "--ranks", "7"], "a hypercube has 2, 4, 8, ... ranks, not 7"),
        (["topology", "Edges(((0, 1), (2, 3)))", "--ranks", "4"], "nothing from rank 0 ever reaches rank 2"),
        (["topology", "ring", "--ranks", "4", "--svg", "nowhere/ring.svg"], "nowhere/ring.svg cannot be written"),
    ],
)
def test_a_mistake_in_the_arguments_is_a_one_line_error(capsys, arguments, expected):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("thinwire: ")
    assert expected in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


def test_python_dash_m_runs_the_same_command():
    ran = subprocess.run([sys.executable, "-m", "thinwire", "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("thinwire ")


@pytest.mark.parametrize("arguments", [["--help"], ["methods"], ["methods", "--json"]])
def test_help_and_methods_do_not_import_torch(arguments):
    script = f"""
import sys
from thinwire.cli import main
try:
    code = main({arguments!r})
except SystemExit as end:
    code = end.code
assert code == 0, code
assert "torch" not in sys.modules
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


TRAINING = ["--ranks", "2", "--transport", "simulated", "--steps", "3"]


def test_train_saves_a_run_and_prints_it(tmp_path, capsys):
    arguments = ["train", "--workload", called("Tiny"), "--method", "topk", *TRAINING, "--out", str(tmp_path)]
    assert main([*arguments, "--json"]) == 0
    (printed,) = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "run.json").read_text())
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "topk" in shown
    assert f"{printed['ratio']:.1f}x" in shown


def test_the_run_file_of_a_run_repeats_it(tmp_path, capsys):
    first, again, longer = (tmp_path / name for name in ("first", "again", "longer"))
    assert main(["train", "--workload", called("Tiny"), "--method", "topk", *TRAINING, "--out", str(first)]) == 0
    file = str(first / "run.toml")
    assert main(["train", "--file", file, "--out", str(again), "--quiet"]) == 0
    assert main(["train", "--file", file, "--out", str(longer), "--quiet", "--epochs", "1"]) == 0
    runs = [json.loads((folder / "run.json").read_text()) for folder in (first, again, longer)]
    assert [p["loss"] for p in runs[0]["history"]] == [p["loss"] for p in runs[1]["history"]]
    assert [run["steps"] for run in runs] == [3, 3, 10]


def test_compare_reads_all_settings_from_a_run_file_and_writes_a_report(tmp_path, capsys):
    out = tmp_path / "out"
    file = tmp_path / "comparison.toml"
    settings = {
        "workload": called("Tiny"),
        "methods": ["dense", "ErrorFeedback(TopK(0.1))"],
        "seeds": 2,
        "ranks": 2,
        "transport": "simulated",
        "steps": 3,
        "out": str(out),
        "quiet": True,
    }
    file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
    assert main(["compare", "--file", str(file)]) == 0
    assert capsys.readouterr().out == ""
    assert len(list(out.rglob("run.json"))) == 4
    page = out / "report.html"
    before = page.read_text()
    page.unlink()
    assert main(["report", str(out), "--target", "0.5"]) == 0
    assert page.exists()
    assert page.read_text() != before, "another target"


def test_a_comparison_with_a_failed_run_reports_on_the_others(tmp_path, capsys, monkeypatch):
    reason = tmp_path / "reason"
    reason.touch()
    monkeypatch.setenv("DIVERGE_WHILE", str(reason))
    methods = ["--methods", "topk", "fp16", "--seeds", "2"]
    arguments = [
        "compare",
        "--workload",
        called("DivergesOnce"),
        *methods,
        *TRAINING,
        "--quiet",
        "--out",
        str(tmp_path),
    ]
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("thinwire: topk, seed 1: diverged: NaN or infinity")
    assert len(error.splitlines()) == 1
    assert len(list(tmp_path.rglob("run.json"))) == 3
    assert (tmp_path / "report.html").exists()
    assert main(arguments) == 0, "the same command makes the missing run"
    assert len(list(tmp_path.rglob("run.json"))) == 4


def test_a_full_disk_is_a_one_line_error_and_keeps_finished_runs(tmp_path):
    def arguments(method):
        out = str(tmp_path / method)
        return ["train", "--workload", called("Tiny"), "--method", method, *TRAINING, "--out", out]

    assert main(arguments("fp16")) == 0
    limit = 1000  # bytes: enough for the files written before a run, too few for the run
    script = f"""
import resource, sys
from thinwire.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
sys.exit(main({arguments("topk")!r}))
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ran.returncode == 2
    assert ran.stderr.startswith("thinwire: ")
    assert "File too large; finished runs are kept" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert not list((tmp_path / "topk").glob("run.json*"))
    assert json.loads((tmp_path / "fp16" / "run.json").read_text())["label"] == "fp16"


def test_workloads_lists_every_task(capsys):
    assert main(["workloads", "--json"]) == 0
    assert json.loads(capsys.readouterr().out).keys() == WORKLOADS.keys()
    assert main(["workloads"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in WORKLOADS)


def test_scale_prints_figures_for_growing_world_sizes(tmp_path, capsys):
    arguments = ["scale", "topk", "--model", "lenet", "--ranks", "2..8", "--link", "100mbit"]
    picture = tmp_path / "scale.png"
    assert main([*arguments, "--json", "--out", str(picture)]) == 0
    assert json.loads(capsys.readouterr().out)
    assert picture.stat().st_size > 1000
    assert main(arguments) == 0
    assert "8" in capsys.readouterr().out


def test_topology_draws_a_graph_and_prints_its_figures(tmp_path, capsys):
    picture = tmp_path / "ring.svg"
    assert main(["topology", "ring", "--ranks", "8", "--json", "--svg", str(picture)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["degree"] == 2
    assert picture.read_text("utf-8").startswith("<svg")
    assert main(["topology", printed["topology"], "--ranks", "8"]) == 0
    shown = capsys.readouterr().out
    assert f"{printed['spectral_gap']:.5g}" in shown
    assert "⠒" in shown
