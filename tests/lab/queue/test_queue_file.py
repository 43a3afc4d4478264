"""Reading queue files: their runs, their order, and errors."""

import pytest

from tests.lab.queue.sample_queues import written
from tests.lab.recording.test_runs import example
from tests.lab.sample_tasks import called
from thinwire.lab import queue
from thinwire.lab.runner.plan import PlanError
from thinwire.lab.tasks.workloads.user_task import digest


def names(found):
    return [item.name for item in found.items()]


def test_runs_are_ordered_by_priority_and_then_seed_by_seed(tmp_path):
    found = queue.read(
        written(
            tmp_path,
            """
            [[plans]]
            name = "later"
            methods = ["dense", "topk"]
            seeds = 2
            [[plans]]
            name = "first"
            method = "powersgd"
            priority = 1
            tags = ["a", "b"]
            """,
        )
    )
    assert names(found) == [
        "first: powersgd, seed 1",
        "later: dense, seed 1",
        "later: topk, seed 1",
        "later: dense, seed 2",
        "later: topk, seed 2",
    ]
    assert found.items()[1].file == tmp_path / "out" / "later" / "dense" / "seed-1.run.json"
    assert names(found.tagged(["b"])) == ["first: powersgd, seed 1"]
    with pytest.raises(ValueError, match="nothing in the queue has the tag 'c': there are a, b"):
        found.tagged(["c"])


def test_seeds_wait_for_their_learning_rate(tmp_path):
    found = queue.read(written(tmp_path, '[[plans]]\nmethods = ["dense"]\ntune = [0.3, 1]\nseeds = 3'))
    assert names(found) == ["Tiny: dense, seed 1, lr x0.3", "Tiny: dense, seed 1"]
    assert found.unknown() == 2


def test_real_links_need_a_quiet_machine(tmp_path):
    found = queue.read(
        written(
            tmp_path,
            """
            [[plans]]
            name = "real"
            methods = ["dense"]
            links = ["10mbit"]
            transport = "processes"
            [[plans]]
            name = "modeled"
            methods = ["dense"]
            links = ["10mbit"]
            [[plans]]
            name = "requested"
            methods = ["dense"]
            quiet_machine = true
            """,
        )
    )
    assert {item.entry.name: item.needs_quiet for item in found.items()} == {
        "real": True,
        "modeled": False,
        "requested": True,
    }


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ("", "has no plans"),
        ("[[plan]]", r"no setting 'plan' \(did you mean 'plans'\?\)"),
        ('[[plans]]\nmethods = ["topkk"]', r"number 1 with its defaults: .*did you mean 'topk'"),
        (
            '[[plans]]\nmethods = ["dense"]\n[[plans]]\nmethods = ["dense"]\nrank = 2',
            "number 2 with its defaults: .*'ranks'",
        ),
        ('[[plans]]\nmethods = ["dense"]\nworkload = "cifar"', "unknown workload 'cifar'"),
        ('[[plans]]\nmethods = ["dense"]\nworkload = "cifar10-resnet18"', "no budget 'plateau', only small, full"),
        ('[[plans]]\nmethods = ["dense"]\nlinks = ["10mbits"]', "'10mbits' is not a link"),
        ('[[plans]]\nmethods = ["dense"]\nshards = "dirichlet:x"', "'dirichlet:x' is not a way"),
        ('[[plans]]\nmethods = ["dense"]\nbatch = 1', "a batch of 1 cannot be divided"),
        ('[[plans]]\nmethods = ["dense"]\nbudget = "small"\ntune = [1, 3]', "tuned on validation examples"),
        ('[[plans]]\nmethods = ["dense"]\nname = "a/b"', "a name becomes a folder"),
        ('[[plans]]\nmethods = ["dense"]\npriorty = 1', r"no setting 'priorty' \(did you mean 'priority'\?\)"),
        ('[[plans]]\nmethods = ["dense"]\npriority = "high"', "priority takes a number, higher runs first, not 'high'"),
        ('[[plans]]\nmethods = ["dense"]\ntags = "a"', "tags takes a list of texts, not 'a'"),
        ('[[plans]]\nmethods = ["dense"]\nquiet_machine = 1', "quiet_machine is true or false, not 1"),
        (
            '[[plans]]\nmethods = ["dense"]\n[[plans]]\nmethods = ["dense"]\nsteps = 7',
            "two plans have the same file .*: .* and .*--steps 7.*; give one of their tables another name",
        ),
    ],
)
def test_a_mistake_in_a_queue_file_is_an_error(tables, message, tmp_path):
    with pytest.raises(PlanError, match=message):
        queue.read(written(tmp_path, tables))


def test_the_output_folder_is_relative_to_the_queue_file(tmp_path, monkeypatch):
    path = written(tmp_path, '[[plans]]\nmethods = ["dense"]')
    path.write_text(path.read_text().replace(f'out = "{tmp_path / "out"}"', 'out = "../results"'))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert queue.read(path).out == tmp_path.parent / "results"


def test_the_same_run_in_two_tables_is_one_run(tmp_path):
    table = '[[plans]]\nmethods = ["dense"]\nseeds = 3\n'
    for tune, known, unknown in (("", 3, 0), ("tune = [1, 3]\n", 2, 2)):
        found = queue.read(written(tmp_path, 2 * (table + tune)))
        assert (len(found.items()), found.unknown()) == (known, unknown)


def test_a_run_file_of_another_plan_fails_only_that_run(tmp_path):
    found = queue.read(written(tmp_path, '[[plans]]\nmethods = ["dense", "topk"]'))
    first, second = found.items()
    plan = first.job.plan
    made = example(workload=plan.workload, method="Average()", plan=plan.as_dict(), source=digest(plan.workload))
    del made.plan["accumulate"]  # as if the setting had been added later: its default is used
    made.write(first.file)
    assert first.finished() is not None
    made.plan["seed"] = 7
    made.write(second.file)
    assert second.finished() is None
    assert "contains a run of another plan (method 'dense', not 'topk', seed 7, not 1)" in (second.failure() or "")
    assert queue.status(found, "q").count("done") == 1


def test_the_folder_of_a_users_task_has_the_name_of_its_class(tmp_path):
    found = queue.read(written(tmp_path, f'[[plans]]\nmethod = "dense"\nworkload = "{called("Slow")}"'))
    assert found.items()[0].file.parts[-3:] == ("Slow", "dense", "seed-1.run.json")
