"""`thinwire run`: a script for one replica, run on several ranks."""

import os
import sys

import pytest

from thinwire.cli import main

SCRIPT = """
import sys
import thinwire

repl = thinwire.Replicator(seed=1)
total = repl.context.all_sum(repl.rank + int(sys.argv[1]))
if "fails" in sys.argv and repl.rank == 1:
    raise ValueError("as requested")
if "ends" in sys.argv:
    sys.exit(0 if repl.rank else int(sys.argv[-1]))
if repl.rank == 0:
    print(f"{__name__} {repl.num_replicas} {repl.method} {total} {sys.argv[1:]}", flush=True)
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return str(path)


@pytest.mark.parametrize("how", [["--transport", "simulated"], ["--link", "50mbit"]], ids=["simulated", "processes"])
def test_a_script_runs_as_main_with_its_arguments_and_restores_the_process(script, how, capfd):
    before = sys.argv, sys.path[:], dict(os.environ), sys.modules["__main__"]
    assert main(["run", script, "--ranks", "3", *how, "--method", "int8", "--", "10", "--ranks", "7"]) == 0
    method = "ErrorFeedback(Sharded(Quantize(8), Quantize(8)))"
    assert f"__main__ 3 {method} 33 ['10', '--ranks', '7']" in capfd.readouterr().out
    assert (sys.argv, sys.path, dict(os.environ), sys.modules["__main__"]) == before


@pytest.mark.parametrize("transport", ["simulated", "processes"])
def test_an_error_of_a_script_is_printed_and_reported(script, transport, capfd):
    assert main(["run", script, "--ranks", "2", "--transport", transport, "--", "1", "fails"]) == 2
    errors = capfd.readouterr().err
    assert 'raise ValueError("as requested")' in errors
    assert errors.strip().splitlines()[-1].startswith(f"thinwire: {script} failed")


def test_a_replicator_made_in_an_imported_module_is_an_error_for_simulated_ranks(tmp_path, capfd):
    (tmp_path / "parts_of_it.py").write_text("import thinwire\nrepl = thinwire.Replicator()\nrepl.context.barrier()\n")
    script = tmp_path / "train.py"
    script.write_text("from parts_of_it import repl\n")
    assert main(["run", str(script), "--ranks", "2", "--transport", "simulated"]) == 2
    assert "a Replicator is created while parts_of_it is imported, but ranks in one process" in capfd.readouterr().err


def test_simulated_ranks_can_pickle_classes_of_the_script(tmp_path, capfd):
    script = tmp_path / "train.py"
    script.write_text(
        "import pickle\nimport thinwire\nclass Mine: pass\ncontext = thinwire.Replicator().context\n"
        "for _ in range(2):\n    context.barrier()\n    kind = type(pickle.loads(pickle.dumps(Mine())))\n"
        "print(kind is Mine, context.rank, flush=True)\n"
    )
    assert main(["run", str(script), "--ranks", "3", "--transport", "simulated"]) == 0
    assert sorted(capfd.readouterr().out.split("\n")) == ["", "True 0", "True 1", "True 2"]


def test_a_script_may_exit_and_its_code_is_reported(script, capfd):
    simulated = ["run", script, "--ranks", "2", "--transport", "simulated", "--", "1", "ends"]
    assert main([*simulated, "0"]) == 0
    assert main([*simulated, "3"]) == 2
    assert "train.py ended with 3" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["nowhere.py"], "there is no script nowhere.py"),
        (["SCRIPT", "--ranks", "0"], "1 rank or more, not 0"),
        (["SCRIPT", "--transport", "pigeons"], "one of processes, simulated, not 'pigeons'"),
        (["SCRIPT", "--transport", "simulated", "--link", "100mbit"], "have no link between them"),
        (["SCRIPT", "--method", "topkk"], "did you mean 'topk'?"),
        (["SCRIPT", "--link", "100mm"], "100mm"),
    ],
)
def test_mistakes_are_errors_before_anything_runs(script, arguments, problem, capfd):
    assert main(["run", *(script if word == "SCRIPT" else word for word in arguments)]) == 2
    assert problem in capfd.readouterr().err
