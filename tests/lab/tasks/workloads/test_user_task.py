import pytest

from thinwire.lab.tasks.workload import Workload
from thinwire.lab.tasks.workloads import WORKLOADS, named

WHOLE = """
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


def test_known_names():
    for name, task in WORKLOADS.items():
        assert named(name) is task


def test_an_unknown_name_is_told_with_the_nearest_and_all_there_are():
    with pytest.raises(
        ValueError, match=r"unknown workload 'cifar-resnet20' \(did you mean 'cifar10-resnet20'\?\)"
    ) as error:
        named("cifar-resnet20")
    assert all(name in str(error.value) for name in WORKLOADS)
    assert "path/to/file.py:Name" in str(error.value)


def test_a_class_is_made_and_an_instance_taken_as_it_is(file):
    file.write_text(WHOLE + "\nready = Mine()\nready.batch = 4\n")
    task = named(f"{file}:Mine")
    assert isinstance(task, Workload)
    assert task.batch == 8
    assert named(f"{file}:ready").batch == 4
    assert type(named(f"{file}:ready")) is type(task), "one module, however often it is named"


def test_files_of_one_name_in_two_folders_are_two(tmp_path):
    for folder, batch in (("a", 3), ("b", 5)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(WHOLE.replace("batch = 8", f"batch = {batch}"))
    assert [named(f"{tmp_path}/{folder}/mine.py:Mine").batch for folder in ("a", "b")] == [3, 5]


def test_a_file_can_import_what_lies_beside_it(tmp_path, file):
    (tmp_path / "beside_my_task.py").write_text("BATCH = 16\n")
    file.write_text("from beside_my_task import BATCH\n" + WHOLE.replace("batch = 8", "batch = BATCH"))
    assert named(f"{file}:Mine").batch == 16


def test_a_path_from_the_current_folder(file, monkeypatch):
    file.write_text(WHOLE)
    monkeypatch.chdir(file.parent)
    assert named("mine.py:Mine").batch == 8


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (WHOLE, "Yours", r"mine\.py has nothing called 'Yours'"),
        (WHOLE, "Budget", "Budget is not a thinwire.lab.tasks.workload.Workload"),
        (WHOLE + "\nanswer = 42\n", "answer", "answer is not a thinwire.lab.tasks.workload.Workload"),
        (WHOLE.replace("def model", "def modle"), "Mine", "Mine lacks model"),
        (WHOLE.replace("def", "undefined = 0 #"), "Mine", r"cannot be imported \(line 9\): IndentationError"),
        (WHOLE.replace("batch = 8", ""), "Mine", "Mine lacks batch"),
        (WHOLE.replace("budgets =", "x ="), "Mine", "Mine lacks budgets"),
        (WHOLE.replace("batch = 8", "def __init__(self, x): pass"), "Mine", r"Mine\(\) failed: TypeError: .*'x'"),
        (WHOLE + "    def __init__(self):\n        self.x = 1 / 0\n", "Mine", r"Mine\(\) failed \(line 17\): ZeroDiv"),
        ("import torch\n\nx = 1 / 0\n", "Mine", r"mine\.py cannot be imported \(line 3\): ZeroDivisionError"),
        ("import torch\nimport no_such_module_there\n", "Mine", r"\(line 2\): ModuleNotFoundError: .*no_such_module"),
        ("x = (\n", "Mine", r"mine\.py cannot be imported \(line 1\): SyntaxError: '\(' was never closed"),
        ("import sys\nsys.exit('usage')\n", "Mine", r"\(line 2\): SystemExit: usage"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(file, content, name, message):
    file.write_text(content)
    with pytest.raises(ValueError, match=message):
        named(f"{file}:{name}")


def test_a_file_that_failed_can_be_corrected(file):
    file.write_text("1 / 0")
    with pytest.raises(ValueError, match="ZeroDivisionError"):
        named(f"{file}:Mine")
    file.write_text(WHOLE)
    assert named(f"{file}:Mine").batch == 8


def test_a_missing_file_or_name_is_told(file):
    with pytest.raises(ValueError, match=r"mine\.py': there is no such file"):
        named(f"{file}:Mine")
    file.write_text(WHOLE)
    for text in (f"{file}", f"{file}:", f"{file}x:Mine"):
        with pytest.raises(ValueError, match=r"path/to/file\.py:Name"):
            named(text)
