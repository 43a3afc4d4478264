from copy import deepcopy

import pytest
import torch

from tests.lab.sample_tasks import called
from thinwire.lab.runner.learner import Learner, task_of
from thinwire.lab.runner.plan import Plan, PlanError


def plan(name="Tiny", **settings):
    return Plan(called(name), "dense", **({"ranks": 2} | settings))


def flat(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_a_task_takes_its_length_from_the_budget_or_the_plan():
    assert task_of(plan()).steps == 10  # 160 examples, 16 per step
    assert task_of(plan(epochs=2.5)).steps == 25
    assert task_of(plan(steps=3)).steps == 3
    assert task_of(plan(batch=40)).steps == 4
    assert task_of(plan(ranks=3)).batch == 5
    assert task_of(plan()).test_examples == 50
    full = task_of(plan(budget="full"))
    assert sum(map(len, full.shares)) == len(full.training) // 2 * 2


def test_a_batch_or_a_budget_that_does_not_fit_is_an_error():
    with pytest.raises(PlanError, match="a batch of 16 cannot be divided among 17 ranks"):
        task_of(plan(ranks=17))
    with pytest.raises(PlanError, match="no budget 'small', only full"):
        task_of(plan("NoSmall"))


def test_data_is_searched_in_the_folder_of_the_plan_or_the_variable(tmp_path, monkeypatch):
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    monkeypatch.setenv("THINWIRE_DATA", str(there))
    with pytest.raises(ValueError, match=f"{there}"):
        task_of(Plan("mnist-cnn", "dense"))
    with pytest.raises(ValueError, match=f"{here}"):
        task_of(Plan("mnist-cnn", "dense", data=str(here)))


def test_ranks_start_from_equal_weights_with_disjoint_examples():
    settings = plan()
    task = task_of(settings)
    first, second = (Learner(settings, task, rank) for rank in range(2))
    assert torch.equal(flat(first.model), flat(second.model))
    examples = [torch.cat([next(learner.batches) for _ in range(10)]) for learner in (first, second)]
    assert not set(examples[0].tolist()) & set(examples[1].tolist())
    assert set(torch.cat(examples).tolist()) == set(torch.cat(task.shares).tolist())


def test_equal_seeds_give_equal_learners_and_other_seeds_others():
    def trained(seed):
        settings = plan("RandomState", seed=seed)
        learner = Learner(settings, task_of(settings), 0)
        for _ in range(3):
            learner.backward()
            learner.update()
        return flat(learner.model)

    assert torch.equal(trained(1), trained(1))
    assert not torch.equal(trained(1), trained(2))


@pytest.mark.parametrize("method", ["powersgd", "osgp", "EdgeGossip(PowerIteration(1), Edges(((0, 1), (1, 2))))"])
def test_warming_up_changes_no_state(method):
    settings = plan("RandomState")
    learner = Learner(settings, task_of(settings), 0)
    before, rng_state = deepcopy(learner.model.state_dict()), torch.get_rng_state()
    learner.warm_up(method)
    assert all(torch.equal(value, before[name]) for name, value in learner.model.state_dict().items())
    assert all(p.grad is None for p in learner.model.parameters())
    assert torch.equal(torch.get_rng_state(), rng_state)


def test_evaluation_leaves_the_model_in_training_mode():
    settings = plan("RandomState")
    learner = Learner(settings, task_of(settings), 0)
    metrics = learner.evaluate()
    assert metrics == learner.evaluate(), "no dropout during evaluation"
    assert learner.model.training
    assert 0 <= metrics["test_accuracy"] <= 1
