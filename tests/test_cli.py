import json
import subprocess
import sys

import pytest

from thinwire import parse
from thinwire.cli import main
from thinwire.methods import METHODS


def test_methods_lists_every_short_name_with_its_notation(capsys):
    assert main(["methods", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed.keys() == METHODS.keys()
    assert all(parse(entry["notation"]) == METHODS[name].reducer for name, entry in listed.items())
    assert main(["methods"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in METHODS)


def test_size_prints_the_same_figures_as_text_and_as_json(capsys):
    assert main(["size", "powersgd", "--model", "lenet", "--ranks", "2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["elements"] == 61_706
    assert told["ratio"] == pytest.approx(told["dense"] / told["payload"])
    assert main(["size", "powersgd", "--model", "lenet", "--ranks", "2"]) == 0
    shown = capsys.readouterr().out
    assert f"{told['ratio']:.1f}x" in shown
    assert "10 Gbit/s" in shown


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["size", "topkk", "--model", "lenet"], "did you mean 'topk'"),
        (["size", "topk", "--model", "resnet5"], "did you mean 'resnet50'"),
        (["size", "Feedback(TopKK(0.1))", "--model", "lenet"], "^^^^^"),
        (["size", "TopK(7)", "--model", "lenet"], "between 0 and 1"),
        (["size", "topk", "--model", "lenet", "--ranks", "1"], "2 ranks or more"),
    ],
)
def test_mistakes_are_answered_with_one_clear_message(capsys, arguments, expected):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("thinwire: ")
    assert expected in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


def test_python_dash_m_runs_the_same_command():
    ran = subprocess.run([sys.executable, "-m", "thinwire", "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("thinwire ")
