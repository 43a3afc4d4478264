"""Saving the gradients of a run and reading them back; runner/test_processes.py captures those of real ranks."""

import json

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.lab.sample_tasks import called
from thinwire import distributions
from thinwire.cli import main
from thinwire.lab.recording import captured
from thinwire.lab.recording.capture import Capture, steps_of
from thinwire.lab.runner.comparison import Job, run_all
from thinwire.lab.runner.learner import Learner, task_of
from thinwire.lab.runner.plan import Plan


def plan(method="topk", name="Tiny", **settings):
    return Plan(called(name), method, **({"ranks": 2, "transport": "simulated", "steps": 7, "capture": 3} | settings))


def captured_folders(folder, *plans):
    """Execute plans, each in its own folder; returns the folders."""
    jobs = [Job(plan, folder / str(number)) for number, plan in enumerate(plans)]
    run_all(jobs, lambda job, event: None)
    return [job.folder for job in jobs]


def files_of(folder):
    return {path.name: path.read_bytes() for path in (folder / "gradients").iterdir()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return captured_folders(tmp_path_factory.mktemp("run"), plan())[0]


@pytest.mark.parametrize(
    ("count", "length", "steps"),
    [
        (3, 7, [1, 4, 7]),
        (4, 11, [1, 4, 7, 11]),
        (2, 100, [1, 100]),
        (1, 100, [50]),
        (1, 1, [1]),
        (9, 3, [1, 2, 3]),
        (9, 1, [1]),
    ],
)
def test_captured_steps_are_evenly_spaced_from_the_first_to_the_last(count, length, steps):
    assert steps_of(count, length) == steps


def test_no_step_is_captured_twice():
    assert all(len(set(steps_of(n, 50))) == n for n in range(1, 51))


def test_captured_gradients_have_the_metadata_of_their_run(folder):
    there = captured.read(folder)
    model = task_of(plan()).workload.model()
    assert there.steps == (1, 4, 7)
    assert there.names == tuple(name for name, _ in model.named_parameters())
    assert there.shapes == {name: tuple(p.shape) for name, p in model.named_parameters()}
    assert set(there.kinds.values()) == {"dense"}
    assert (there.workload, there.method, there.seed) == (called("Tiny"), "topk", 1)
    assert (there.batch, there.length) == (8, 7)
    for step in there.steps:
        for name in there.names:
            gradient = there.gradient(step, name)
            assert gradient.dtype == torch.float32
            assert gradient.shape == there.shapes[name]
            assert gradient.count_nonzero() > 0.1 * gradient.numel(), "the gradient before compression, not after"


def test_the_first_gradient_is_that_of_rank_0s_first_batch(folder):
    task, there = task_of(plan()), captured.read(folder)
    inputs, targets = task.training.batch(next(Learner(plan(), task, 0).batches), None)
    torch.manual_seed(plan().seed)
    model = task.workload.model()
    F.cross_entropy(model(inputs), targets).backward()
    for name, p in model.named_parameters():
        torch.testing.assert_close(there.gradient(1, name), p.grad, rtol=1e-5, atol=1e-8)


def test_capturing_does_not_change_the_run(tmp_path):
    without, with_it = (
        json.loads((run / "run.json").read_text()) for run in captured_folders(tmp_path, plan(capture=None), plan())
    )
    assert not (tmp_path / "0" / "gradients").exists()
    assert [point["loss"] for point in without["history"]] == [point["loss"] for point in with_it["history"]]
    assert without["bytes"] == with_it["bytes"]
    assert "--capture 3" in with_it["command"]


def test_capture_is_set_by_command_line_and_by_run_file(tmp_path):
    first, again, several = (tmp_path / name for name in ("first", "again", "several"))
    settings = ["--ranks", "2", "--transport", "simulated", "--steps", "3", "--quiet"]
    arguments = ["train", "--workload", called("Tiny"), "--method", "topk", "--capture", "2", *settings]
    assert main([*arguments, "--out", str(first)]) == 0
    assert main(["train", "--file", str(first / "run.toml"), "--quiet", "--out", str(again)]) == 0
    assert files_of(first) == files_of(again)
    file = tmp_path / "comparison.toml"
    file.write_text('methods = ["topk"]\ncapture = 2\n')
    compared = ["compare", "--file", str(file), "--workload", called("Tiny"), *settings, "--out", str(several)]
    assert main(compared) == 0
    assert files_of(several / "topk" / "seed-1") == files_of(first)


def test_gradients_of_an_unfinished_run_are_removed(tmp_path):
    stale = tmp_path / "0" / "gradients" / "step-000002.npz"
    stale.parent.mkdir(parents=True)
    stale.touch()
    captured_folders(tmp_path, plan())
    assert sorted(files_of(tmp_path / "0")) == ["index.json", *(f"step-00000{step}.npz" for step in (1, 4, 7))]


def learner_of(model):
    """A learner of rank 0, with another model."""
    settings = plan()
    task = task_of(settings)
    learner = Learner(settings, task, 0)
    learner.model = model
    return settings, task, learner


def test_unused_parameters_have_zero_gradients(tmp_path):
    model = nn.ModuleDict({"used": nn.Linear(2, 2).to(torch.bfloat16), "unused": nn.Linear(2, 2)})
    capture = Capture(*learner_of(model), tmp_path)
    with capture.at(1):
        model["used"](torch.ones(1, 2, dtype=torch.bfloat16)).sum().backward()
    there = captured.read(tmp_path)
    assert there.steps == (1,)
    assert torch.equal(there.gradient(1, "used.weight"), torch.ones(2, 2))
    assert torch.equal(there.gradient(1, "unused.weight"), torch.zeros(2, 2))
    with capture.at(2):  # not due
        model["used"](torch.ones(1, 2, dtype=torch.bfloat16)).sum().backward()
    assert captured.read(tmp_path).steps == (1,)


def test_a_failed_step_leaves_no_partial_file(tmp_path):
    model = nn.Linear(2, 2)
    capture = Capture(*learner_of(model), tmp_path)

    def fail(backwards, error=None):
        with capture.at(1):
            for _ in range(backwards):
                model(torch.ones(1, 2)).sum().backward()
            if error:
                raise error

    with pytest.raises(KeyError, match="stop"):
        fail(1, KeyError("stop"))
    assert not list((tmp_path / "gradients").iterdir())
    with pytest.raises(ValueError, match="arrives in several parts"):
        fail(2)
    model(torch.ones(1, 2)).sum().backward()
    assert not list((tmp_path / "gradients").iterdir()), "no hook is left registered"


def test_capturing_without_a_folder_is_an_error():
    with pytest.raises(ValueError, match="needs a folder"):
        Capture(*learner_of(nn.Linear(2, 2)), None)


def test_a_missing_and_a_damaged_index_are_different_errors(tmp_path):
    with pytest.raises(ValueError, match="holds no gradients: `thinwire train --capture N`"):
        captured.read(tmp_path)
    inside = tmp_path / "gradients"
    inside.mkdir()
    for damaged in ("{", "[]", "{}", '{"schema": 2}', '{"schema": 1}'):
        (inside / "index.json").write_text(damaged)
        with pytest.raises(ValueError, match=r"index\.json cannot be read as an index of gradients"):
            captured.read(tmp_path)


def test_damaged_files_are_errors_that_name_them(tmp_path):
    (run,) = captured_folders(tmp_path, plan())
    there, file = captured.read(run), run / "gradients" / "step-000004.npz"
    content = file.read_bytes()
    largest = there.names[0]
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    unclosed = content.replace(b"), }", b"(, }", 1)  # the shape in the header of an array
    packed = bytearray(content)
    packed[content.index(b"PK\x01\x02") + 10] = 99  # the compression method in the central directory
    other = (run / "gradients" / "index.json").read_bytes()
    for damaged in (content[:1000], b"", bytes(flipped), unclosed, bytes(packed), other):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"step-000004\.npz is damaged"):
            [there.gradient(4, name) for name in there.names]
    with pytest.raises(ValueError, match=r"no gradients of step 3, only of 1, 4, 7"):
        there.gradient(3, largest)
    with pytest.raises(ValueError, match=r"no parameter '1\.wait' \(did you mean '1\.weight'\?\)"):
        there.gradient(1, "1.wait")
    file.unlink()
    with pytest.raises(ValueError, match=r"damaged: step-000004\.npz is missing"):
        captured.read(run)


def test_captured_gradients_fit_a_generalized_normal_distribution(folder):
    gradient = captured.read(folder).gradient(7, "1.weight")
    gradient = gradient[gradient != 0]  # of pixels that are always dark
    own, normal = distributions.fit_by_likelihood(gradient), distributions.fit_by_likelihood(gradient, shape=2)
    assert distributions.kolmogorov(gradient, own) < distributions.kolmogorov(gradient, normal)
