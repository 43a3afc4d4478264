import pytest

from thinwire.lab.tasks.workload import Workload
from thinwire.lab.tasks.workloads import WORKLOADS, named

COMPLETE = """
from thinwire.lab.tasks.workload import Budget, Workload

class Mine(Workload):
    batch = 8
    budgets = {"small": Budget(1)}

    def load(self, folder):
        return None, None

    def model(self):
        return None

    def optimizer(self, model):
        return None
"""


@pytest.fixture
def file(tmp_path):
    return tmp_path / "mine.py"


def test_known_names_are_the_named_tasks():
    for name, task in WORKLOADS.items():
        assert named(name) is task


def test_an_unknown_name_is_an_error_with_the_nearest_and_all_known_names():
    with pytest.raises(
        ValueError, match=r"unknown workload 'cifar-resnet20' \(did you mean 'cifar10-resnet20'\?\)"
    ) as error:
        named("cifar-resnet20")
    assert all(name in str(error.value) for name in WORKLOADS)
    assert "path/to/file.py:Name" in str(error.value)


def test_a_class_is_instantiated_and_an_instance_used_as_it_is(file):
    file.write_text(COMPLETE + "\nready = Mine()\nready.batch = 4\n")
    task = named(f"{file}:Mine")
    assert isinstance(task, Workload)
    assert task.batch == 8
    assert named(f"{file}:ready").batch == 4
    assert type(named(f"{file}:ready")) is type(task), "the module is imported once"


def test_files_with_the_same_name_in_two_folders_are_two_modules(tmp_path):
    for folder, batch in (("a", 3), ("b", 5)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(COMPLETE.replace("batch = 8", f"batch = {batch}"))
    assert [named(f"{tmp_path}/{folder}/mine.py:Mine").batch for folder in ("a", "b")] == [3, 5]


def test_a_file_can_import_modules_beside_it(tmp_path, file):
    (tmp_path / "beside_my_task.py").write_text("BATCH = 16\n")
    file.write_text("from beside_my_task import BATCH\n" + COMPLETE.replace("batch = 8", "batch = BATCH"))
    assert named(f"{file}:Mine").batch == 16


def test_a_relative_path_is_resolved_from_the_current_folder(file, monkeypatch):
    file.write_text(COMPLETE)
    monkeypatch.chdir(file.parent)
    assert named("mine.py:Mine").batch == 8


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (COMPLETE, "Yours", r"mine\.py has nothing called 'Yours'"),
        (COMPLETE, "Budget", "Budget is not a thinwire.lab.tasks.workload.Workload"),
        (COMPLETE + "\nanswer = 42\n", "answer", "answer is not a thinwire.lab.tasks.workload.Workload"),
        (COMPLETE.replace("def model", "def modle"), "Mine", "Mine lacks model"),
        (COMPLETE.replace("def", "undefined = 0 #"), "Mine", r"cannot be imported \(line 9\): IndentationError"),
        (COMPLETE.replace("batch = 8", ""), "Mine", "Mine lacks batch"),
        (COMPLETE.replace("budgets =", "x ="), "Mine", "Mine lacks budgets"),
        (COMPLETE.replace("batch = 8", "def __init__(self, x): pass"), "Mine", r"Mine\(\) failed: TypeError: .*'x'"),
        (
            COMPLETE + "    def __init__(self):\n        self.x = 1 / 0\n",
            "Mine",
            r"Mine\(\) failed \(line 17\): ZeroDiv",
        ),
        ("import torch\n\nx = 1 / 0\n", "Mine", r"mine\.py cannot be imported \(line 3\): ZeroDivisionError"),
        ("import torch\nimport no_such_module_there\n", "Mine", r"\(line 2\): ModuleNotFoundError: .*no_such_module"),
        ("x = (\n", "Mine", r"mine\.py cannot be imported \(line 1\): SyntaxError: '\(' was never closed"),
        ("import sys\nsys.exit('usage')\n", "Mine", r"\(line 2\): SystemExit: usage"),
    ],
)
def test_a_broken_task_file_is_an_error_with_the_reason(file, content, name, message):
    file.write_text(content)
    with pytest.raises(ValueError, match=message):
        named(f"{file}:{name}")


def test_a_file_that_failed_can_be_corrected(file):
    file.write_text("1 / 0")
    with pytest.raises(ValueError, match="ZeroDivisionError"):
        named(f"{file}:Mine")
    file.write_text(COMPLETE)
    assert named(f"{file}:Mine").batch == 8


def test_a_missing_file_or_name_is_an_error(file):
    with pytest.raises(ValueError, match=r"mine\.py': there is no such file"):
        named(f"{file}:Mine")
    file.write_text(COMPLETE)
    for text in (f"{file}", f"{file}:", f"{file}x:Mine"):
        with pytest.raises(ValueError, match=r"path/to/file\.py:Name"):
            named(text)
