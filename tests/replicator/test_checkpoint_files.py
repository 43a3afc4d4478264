"""A training resumed from a checkpoint gives the same bits, including inputs and random numbers."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import thinwire
from tests.attach.processes import run
from tests.replicator.test_replicator import bits, network
from thinwire import Replicator
from thinwire.simulate import InProcessCluster


def shuffled(context: thinwire.Context) -> Iterator[Tensor]:
    """Epochs of five batches each, in a random order."""
    while True:
        for i in torch.randperm(5).tolist():
            yield torch.linspace(-1, 1, 48).view(4, 12).roll(i) + torch.randn(4, 12) * 0.1 + context.rank


class StatefulInputs:
    """Inputs with a state_dict."""

    def __init__(self, context: thinwire.Context) -> None:
        self.at, self.rank = 0, context.rank

    def __iter__(self) -> Iterator[Tensor]:
        while True:
            self.at += 1
            yield torch.full((4, 12), float(self.at % 7 + self.rank))

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


def updated(
    replicator: Replicator, model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, breaks_at: int | None
) -> Tensor:
    """Run a step and return its loss; interrupt the training before step `breaks_at`."""
    if replicator.step == breaks_at:
        raise KeyboardInterrupt
    loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    replicator.handles[0].report_loss(loss)
    optimizer.step()
    return loss.detach()


def trained(
    method: str, steps: int, folder: str | None = None, breaks_at: int | None = None, inputs: Any = shuffled
) -> tuple[list[float], list[list[float]], dict[str, float]]:
    torch.set_num_threads(1)
    replicator = Replicator(method, seed=4)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    replicator.wrap(model, optimizer)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    replicator.keep(schedule=schedule)

    def step(context: thinwire.Context, x: Tensor) -> float:
        loss = updated(replicator, model, optimizer, x, breaks_at)
        schedule.step()
        return float(context.all_mean(loss))

    every = None if folder is None else 2
    losses = replicator.run(step, inputs, steps, checkpoint=folder, every=every)
    counted = {name: n for name, n in replicator.handles[0].meter.as_dict("").items() if "seconds" not in name}
    return losses, bits(model), counted


METHODS = [
    "dense",
    "powersgd",
    "powergossip",
    "LocalSGD(Identity(), every=4)",
    "LocalSGD(ErrorFeedback(TopK(0.1)), every=3, delay=2)",  # saved while messages are in flight
    "osgp",
]


@pytest.mark.parametrize(("method", "inputs"), [*((method, shuffled) for method in METHODS), ("topk", StatefulInputs)])
def test_a_resumed_training_gives_the_same_bits(method, inputs, tmp_path):
    uninterrupted = InProcessCluster(2).run(lambda: trained(method, 9, inputs=inputs))  # without saving
    folder = str(tmp_path / "stopped")
    with pytest.raises(KeyboardInterrupt):
        InProcessCluster(2).run(lambda: trained(method, 9, folder, breaks_at=5, inputs=inputs))
    resumed = InProcessCluster(2).run(lambda: trained(method, 9, folder, inputs=inputs))
    for (losses, model, counted), (later, same, recounted) in zip(uninterrupted, resumed, strict=True):
        assert later == losses[4:], "resumed from the last checkpoint, after step 4"
        assert same == model
        assert recounted == counted


def test_a_restarted_finished_training_makes_no_steps(tmp_path):
    first = InProcessCluster(2).run(lambda: trained("topk", 4, str(tmp_path)))
    again = InProcessCluster(2).run(lambda: trained("topk", 4, str(tmp_path)))
    assert [losses for losses, *_ in again] == [[], []]
    assert [model for _, model, _ in again] == [model for _, model, _ in first]


def test_a_finished_training_can_be_extended(tmp_path):
    InProcessCluster(2).run(lambda: trained("topk", 4, str(tmp_path)))
    longer = InProcessCluster(2).run(lambda: trained("topk", 7, str(tmp_path)))
    assert [model for _, model, _ in longer] == [
        model for _, model, _ in InProcessCluster(2).run(lambda: trained("topk", 7))
    ]


def test_processes_resume_from_checkpoints_of_threads(tmp_path):
    InProcessCluster(2).run(lambda: trained("powersgd", 4, str(tmp_path)))
    assert run(trained, "powersgd", 7, str(tmp_path), ranks=2)[0][1] == run(trained, "powersgd", 7, ranks=2)[0][1]


def test_the_newest_checkpoint_that_all_ranks_have_is_loaded(tmp_path):
    InProcessCluster(2).run(lambda: trained("dense", 6, str(tmp_path)))
    (tmp_path / "rank-1-step-6.pt").unlink()  # as if rank 1 had been killed before it wrote
    resumed = InProcessCluster(2).run(lambda: trained("dense", 6, str(tmp_path)))
    assert [len(losses) for losses, *_ in resumed] == [2, 2]
    assert resumed[0][1] == InProcessCluster(2).run(lambda: trained("dense", 6))[0][1]


def test_only_the_last_two_checkpoints_are_kept(tmp_path):
    InProcessCluster(1).run(lambda: trained("dense", 9, str(tmp_path)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rank-0-step-8.pt", "rank-0-step-9.pt"]


def test_checkpoints_load_with_weights_only(tmp_path):
    InProcessCluster(1).run(lambda: trained("powersgd", 2, str(tmp_path)))
    state = torch.load(tmp_path / "rank-0-step-2.pt", weights_only=True)
    assert state["step"] == 2
    assert state["kept"].keys() == {"model 0", "optimizer 0", "schedule"}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            lambda folder: InProcessCluster(2).run(lambda: trained("int8", 4, folder)),
            r"method .*TopK.*, and this one has",
        ),
        (
            lambda folder: InProcessCluster(3).run(lambda: trained("topk", 4, folder)),
            "rank 2 has none. Was it written by another number of ranks",
        ),
        (lambda folder: InProcessCluster(1).run(lambda: trained("topk", 4, folder)), "ranks 2, and this one has 1"),
        (
            lambda folder: InProcessCluster(2).run(
                lambda: Replicator("topk").run(lambda c, i: i, lambda c: [1], checkpoint=folder)
            ),
            "contain model 0, optimizer 0, schedule, and this run has nothing",
        ),
    ],
)
def test_the_checkpoint_of_another_training_is_an_error_and_stays_unchanged(change, problem, tmp_path):
    InProcessCluster(2).run(lambda: trained("topk", 2, str(tmp_path)))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match=problem):
        change(str(tmp_path))
    assert {path.name: path.read_bytes() for path in Path(tmp_path).iterdir()} == before


def epochs(folder: str, breaks_at: int | None = None) -> tuple[list[list[float]], list[list[float]]]:
    """Three runs of three steps in one checkpoint folder: the losses of each, and the resulting model.

    The learning rate changes after each run. A restarted script executes these lines again.
    """
    torch.set_num_threads(1)
    replicator = Replicator("topk", seed=4)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    replicator.wrap(model, optimizer)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)
    replicator.keep(schedule=schedule)

    def step(context: thinwire.Context, x: Tensor) -> float:
        return float(updated(replicator, model, optimizer, x, breaks_at))

    def one_epoch(context: thinwire.Context) -> Iterator[Tensor]:
        return (torch.randn(4, 12) for _ in range(3))

    losses = []
    for _ in range(3):
        losses.append(replicator.run(step, one_epoch, checkpoint=folder, every=2))
        with warnings.catch_warnings():  # torch warns of a schedule step before an optimizer step, after a skipped run
            warnings.simplefilter("ignore", UserWarning)
            schedule.step()
    assert schedule.get_last_lr() == [pytest.approx(0.1 * 0.7**3)]
    return losses, bits(model)


@pytest.mark.parametrize(("breaks_at", "left"), [(0, [3, 3, 3]), (4, [0, 2, 3]), (6, [0, 0, 3]), (8, [0, 0, 1])])
def test_several_runs_in_one_folder_resume_in_the_interrupted_one(breaks_at, left, tmp_path):
    uninterrupted, model = InProcessCluster(2).run(lambda: epochs(str(tmp_path / "uninterrupted")))[0]
    assert [len(losses) for losses in uninterrupted] == [3, 3, 3], "each run makes its steps"
    folder = str(tmp_path / "stopped")
    with pytest.raises(KeyboardInterrupt):
        InProcessCluster(2).run(lambda: epochs(folder, breaks_at))
    resumed, same = InProcessCluster(2).run(lambda: epochs(folder))[0]
    expected = [losses[len(losses) - n :] for losses, n in zip(uninterrupted, left, strict=True)]
    assert (resumed, same) == (expected, model)
    nothing, same = InProcessCluster(2).run(lambda: epochs(folder))[0]
    assert (nothing, same) == ([[], [], []], model), "all runs are completed"


def wrapped_in_between(folder: str, breaks_at: int | None = None) -> tuple[int, list[list[float]]]:
    """A second model is wrapped after the first run; a run of no steps follows each run."""
    torch.set_num_threads(1)
    replicator = Replicator("topk", seed=4)
    models = [network() for _ in range(2)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]

    def step(context: thinwire.Context, x: Tensor) -> None:
        if replicator.step == breaks_at:
            raise KeyboardInterrupt
        for model, optimizer, _ in zip(models, optimizers, replicator.handles, strict=False):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), x[:, :3].argmax(1)).backward()
            optimizer.step()

    for model, optimizer in zip(models, optimizers, strict=True):
        replicator.wrap(model, optimizer)
        replicator.run(step, shuffled, 3, checkpoint=folder, every=2)
        replicator.run(step, shuffled, 0, checkpoint=folder)
    return replicator.step, [values for model in models for values in bits(model)]


def test_a_model_wrapped_between_runs_is_resumed(tmp_path):
    uninterrupted = InProcessCluster(2).run(lambda: wrapped_in_between(str(tmp_path / "uninterrupted")))
    with pytest.raises(KeyboardInterrupt):
        InProcessCluster(2).run(lambda: wrapped_in_between(str(tmp_path / "stopped"), breaks_at=5))
    assert InProcessCluster(2).run(lambda: wrapped_in_between(str(tmp_path / "stopped"))) == uninterrupted


def test_a_run_without_steps_saves_no_checkpoint(tmp_path):
    InProcessCluster(1).run(lambda: wrapped_in_between(str(tmp_path)))
    runs = [torch.load(path, weights_only=True)["run"] for path in sorted(tmp_path.iterdir())]
    assert runs == [2, 2], "not 3, which made no steps"
