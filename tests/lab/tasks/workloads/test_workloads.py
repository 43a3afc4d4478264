"""Every task can be trained and evaluated, on random data of its kind."""

import math
from functools import cache

import numpy as np
import pytest
import torch

from thinwire.lab.tasks.datasets import camvid, shakespeare
from thinwire.lab.tasks.datasets.camvid import Scenes
from thinwire.lab.tasks.datasets.images import Images
from thinwire.lab.tasks.datasets.text import Text
from thinwire.lab.tasks.workload import Split
from thinwire.lab.tasks.workloads import WORKLOADS, named

PARAMETERS = {
    "digits-cnn": 85_258,
    "mnist-cnn": 431_080,  # Caffe's LeNet
    "cifar10-cnn": 89_578,  # Caffe's "CIFAR-10 full"
    "cifar10-resnet9": 927_000,
    "cifar10-resnet20": 269_722,
    "cifar10-resnet18": 11_173_962,
    "cifar10-vgg16": 14_728_266,
    "cifar10-vgg16-narrow": 924_186,
    "shakespeare-lstm": 1_086_017,
    "shakespeare-gpt": 804_096,  # 0.80 million, nanoGPT prints
    "camvid-pspnet": 1_387_798,
}

every_task = pytest.mark.parametrize("name", PARAMETERS)


def random_images(height, channels, count=12) -> Split:
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (count, height, height, channels), np.uint8)
    labels = generator.integers(0, 10, count, np.uint8)
    return Images(pixels, labels, [128] * channels, [70] * channels, shift=4, flip=True)


def random_text(window) -> Split:
    return Text(np.random.default_rng(0).integers(0, len(shakespeare.CHARACTERS), 12 * window + 1, np.uint8), window)


def random_scenes() -> Split:
    # Sky above a road, and an unlabeled corner.
    classes = np.zeros((4, camvid.HEIGHT, camvid.WIDTH), np.uint8)
    classes[:, 90:] = 3
    classes[:, :20, :20] = camvid.IGNORED
    noise = np.random.default_rng(0).integers(0, 60, (*classes.shape, 3), np.uint8)
    return Scenes(noise + np.uint8(50) * classes[..., None], classes)


@cache
def data(name: str) -> Split:
    kind = name.split("-")[0]
    if kind == "shakespeare":
        return random_text(64)
    if kind == "camvid":
        return random_scenes()
    return random_images(*{"digits": (8, 1), "mnist": (28, 1), "cifar10": (32, 3)}[kind])


@cache
def built(name: str) -> torch.nn.Module:
    """Build each model once: building the large ones takes most of the time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return named(name).model()


def test_every_task_is_listed():
    assert list(WORKLOADS) == list(PARAMETERS)


@every_task
def test_the_model_has_the_expected_number_of_parameters(name):
    assert sum(p.numel() for p in built(name).parameters()) == PARAMETERS[name]


@every_task
def test_six_steps_reduce_the_loss_of_a_batch(name):
    task = named(name)
    torch.manual_seed(0)
    model = task.model().train()
    optimizer = task.optimizer(model)
    schedule = task.schedule(optimizer, 100)  # some rates are too high for a first step
    inputs, targets = data(name).batch(torch.arange(4), None)
    losses = []
    for _ in range(6):
        loss = task.loss(model, inputs, targets)
        optimizer.zero_grad()
        loss.backward()
        assert all(p.grad is not None for p in model.parameters()), "DistributedDataParallel waits for every gradient"
        task.adjust(model)
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]


@every_task
def test_the_optimizer_has_every_parameter_once(name):
    model = built(name)
    optimizer = named(name).optimizer(model)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    assert len(parameters) == len(set(parameters)) == len(list(model.parameters()))


@every_task
@pytest.mark.parametrize("steps", [1, 3, 200])
def test_the_learning_rate_never_rises_above_the_optimizers_own_and_ends_below_it(name, steps):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    schedule = named(name).schedule(optimizer, steps)
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert min(rates) > 0
    assert max(rates) <= 0.5
    assert optimizer.param_groups[0]["lr"] < 0.5


@every_task
def test_evaluation_returns_the_compared_metric_and_changes_no_parameter(name):
    task, model = named(name), built(name).eval()
    before = [p.clone() for p in model.parameters()]
    metrics = task.evaluate(model, data(name), 3)
    assert task.metric in metrics
    assert "test_loss" in metrics
    assert all(math.isfinite(value) for value in metrics.values())
    assert task.better == ("lower" if name.startswith("shakespeare") else "higher")
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    assert metrics == task.evaluate(model, data(name), 3)


@every_task
def test_a_batch_can_be_divided_among_the_usual_numbers_of_ranks(name):
    assert all(named(name).batch % ranks == 0 for ranks in (1, 2, 4, 8))


TOO_LARGE = {"cifar10-resnet20", "cifar10-resnet18", "cifar10-vgg16"}  # for a plateau within an hour


@every_task
def test_every_task_has_the_expected_budgets(name):
    budgets = named(name).budgets
    assert set(budgets) == {"small", "full"} | (set() if name in TOO_LARGE else {"plateau"})
    assert budgets["full"].training is None
    assert budgets["full"].test is None
    assert budgets["small"].epochs < budgets["full"].epochs


@pytest.mark.parametrize("name", [name for name in PARAMETERS if name not in TOO_LARGE])
def test_the_plateau_budget_has_validation_examples_and_uses_all_others(name):
    plateau = named(name).budgets["plateau"]
    assert plateau.validation
    assert (plateau.training, plateau.test) == (None, None)
    assert named(name).budgets["small"].epochs < plateau.epochs < named(name).budgets["full"].epochs


@every_task
def test_the_global_seed_determines_the_weights(name):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        again = named(name).model()
        torch.manual_seed(1)
        other = named(name).model()
    same = [torch.equal(a, b) for a, b in zip(built(name).parameters(), again.parameters(), strict=True)]
    differs = [not torch.equal(a, b) for a, b in zip(built(name).parameters(), other.parameters(), strict=True)]
    assert all(same)
    assert any(differs)


@pytest.mark.parametrize("name", [name for name in PARAMETERS if name != "digits-cnn"])
def test_a_task_without_its_data_is_an_error(name):
    with pytest.raises(ValueError, match="no folder with data sets was given"):
        named(name).load(None)


def test_the_digits_need_no_folder():
    training, test = named("digits-cnn").load(None)
    assert (len(training), len(test)) == (1437, 360)


def test_digits_are_learned_within_40_steps():
    task = named("digits-cnn")
    training, test = task.load(None)
    torch.manual_seed(0)
    model = task.model()
    optimizer = task.optimizer(model)
    generator = torch.Generator().manual_seed(0)
    for _ in range(40):
        inputs, targets = training.batch(torch.randint(len(training), (128,), generator=generator), generator)
        optimizer.zero_grad()
        task.loss(model, inputs, targets).backward()
        optimizer.step()
    assert task.evaluate(model.eval(), test, 360)["test_accuracy"] > 0.9
