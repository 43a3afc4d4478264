"""What is equal for all methods: examples, warm-up, rates, model selection; and the baselines."""

import pytest
import torch

from tests.lab.runner.test_learner import flat, plan
from tests.lab.sample_tasks import called
from thinwire.lab.runner import simulation
from thinwire.lab.runner.learner import Learner, task_of
from thinwire.lab.runner.plan import Plan
from thinwire.lab.runner.run_folder import RunFolder
from thinwire.lab.tasks.datasets.text import Text
from thinwire.lab.tasks.workload import Part
from thinwire.lab.tasks.workloads import named


def run(method="dense", **settings):
    settings = {"ranks": 2, "transport": "simulated", "budget": "plateau"} | settings
    events = []
    simulation.run([Plan(called("Tiny"), method, **settings)], events.append, [RunFolder()])
    result = [event["done"] for event in events if "done" in event]
    assert result, events[-1]
    return result[0]


def test_validation_examples_are_not_trained_on_and_equal_for_all_seeds():
    chosen = []
    for seed in (1, 2):
        task = task_of(plan(budget="plateau", seed=seed))
        assert isinstance(task.training, Part)
        assert isinstance(task.validation, Part)
        trained, kept = task.training._chosen, task.validation._chosen
        assert len(kept) == 40
        assert not set(trained.tolist()) & set(kept.tolist())
        inputs, labels = task.validation.batch(torch.arange(3), None)
        full = named(called("Tiny")).load(None)[0]
        assert torch.equal(inputs, full.batch(kept[:3], None)[0])
        assert torch.equal(labels, full.labels[kept[:3]])
        chosen.append(kept)
    assert torch.equal(*chosen)


def test_the_validation_part_of_a_text_is_its_end_and_shares_no_window_with_training():
    task = named("shakespeare-gpt")
    full = Text(torch.arange(2000), task.window)
    training, validation = task.hold_back(full, 5, None)
    assert len(validation) == 5
    assert len(training) + 5 == len(full)
    joined = torch.cat([training.numbers, validation.numbers[1:]])
    assert torch.equal(joined, full.numbers), "one character is the last target of one and the first input of the other"


def test_the_reported_test_metric_is_from_the_evaluation_with_the_best_validation_metric():
    result = run(steps=40, evaluations=8)
    best = max(result["evaluations"], key=lambda evaluation: evaluation["validation_accuracy"])
    assert result["best_step"] == best["step"]
    assert result["metrics"]["test_accuracy"] == best["test_accuracy"]
    assert len(result["evaluations"]) == 8
    unvalidated = run(steps=10, budget="small")
    assert unvalidated["best_step"] == 10
    assert "validation_accuracy" not in unvalidated["metrics"]


def test_the_learning_rate_is_scaled_and_warmed_up_under_a_schedule():
    def rates(**settings):
        learner = Learner(plan(steps=10, **settings), task_of(plan(steps=10, **settings)), 0)
        seen = []
        learner.optimizer.register_step_pre_hook(lambda optimizer, *_: seen.append(optimizer.param_groups[0]["lr"]))
        for _ in range(10):
            learner.backward()
            assert learner.rate == pytest.approx(learner.optimizer.param_groups[0]["lr"] * learner._rate_scale())
            learner.update()
        return seen

    plain = rates()
    assert rates(lr_scale=3.0) == pytest.approx([3 * rate for rate in plain])
    warmed = rates(warmup=0.4)
    assert warmed[:4] == pytest.approx([rate * (step + 1) / 5 for step, rate in enumerate(plain[:4])])
    assert warmed[4:] == plain[4:]


def test_a_plans_warm_up_replaces_the_budgets():
    assert task_of(Plan("digits-cnn", "dense", budget="plateau")).warmup == 0.05
    assert task_of(Plan("digits-cnn", "dense", budget="plateau", warmup=0.0)).warmup == 0.0
    assert task_of(Plan("digits-cnn", "dense")).warmup == 0.0


def test_accumulated_batches_give_the_step_of_one_large_batch():
    small, large = plan(accumulate=4, batch=8, steps=12), plan(batch=32, steps=3)
    one, other = Learner(small, task_of(small), 0), Learner(large, task_of(large), 0)
    for _ in range(3):
        losses = float(one.backward()), float(other.backward())
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)
        for learner in (one, other):
            learner.update()
    assert torch.allclose(flat(one.model), flat(other.model), atol=1e-6)


@pytest.mark.parametrize("length", [{"epochs": 2}, {"steps": 20}])
def test_accumulation_sends_fewer_bytes_for_the_same_examples(length):
    plain, accumulated = run(**length), run(accumulate=4, **length)
    assert accumulated["steps"] * accumulated["examples"] == plain["steps"] * plain["examples"]
    assert 4 * accumulated["bytes"]["payload"] == plain["bytes"]["payload"]
    assert accumulated["ratio"] == 4 * plain["ratio"]
    assert accumulated["bytes"]["dense"] == plain["bytes"]["dense"]
    assert accumulated["variant"] == "accumulate:4"


def test_a_rank_alone_trains_for_the_same_steps_and_sends_nothing():
    together, alone = run(), run(alone=True)
    assert alone["steps"] == together["steps"]
    assert alone["bytes"]["link"] == alone["bytes"]["payload"] == 0
    assert alone["history"][-1]["payload_bytes"] == 0
    assert 2 * alone["examples"] == together["examples"]
    assert alone["batch"] == together["batch"], "reports compare it with the others"
    on_a_link = run(alone=True, link="1mbit", modeled=True)
    assert on_a_link["seconds"]["exchange"] == 0


def test_the_batch_per_rank_can_be_set():
    assert task_of(plan(batch_per_rank=20)).batch == 20
    assert task_of(plan(batch_per_rank=20)).steps == 4  # 160 examples, 40 per step
