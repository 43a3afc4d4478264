"""The Replicator: training with any method, overlap, run() and iterate(), and errors in their arguments."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import thinwire
from tests.attach.processes import run
from thinwire import Replicator
from thinwire.simulate import InProcessCluster

STEPS = 5


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 96), nn.Dropout(0.3), nn.ReLU(), nn.Linear(96, 64), nn.ReLU(), nn.Linear(64, 3))


def batches(context: thinwire.Context) -> Iterator[tuple[Tensor, Tensor]]:
    while True:
        x = torch.randn(context.per_replica_batch_size(24), 12)
        yield x, x[:, :3].argmax(1)


def bits(model: nn.Module) -> list[list[float]]:
    return [p.flatten().tolist() for p in model.parameters()]


def trained(method: str, overlap: bool = False, **settings: Any) -> dict[str, Any]:
    torch.set_num_threads(1)
    replicator = Replicator(method, seed=4, **settings)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    wrapped, _ = replicator.wrap(model, optimizer, overlap=overlap)

    def step(context: thinwire.Context, batch: tuple[Tensor, Tensor]) -> Tensor:
        loss = nn.functional.cross_entropy(wrapped(batch[0]), batch[1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return context.all_mean(loss)

    losses = replicator.run(step, batches, STEPS)
    (handle,) = replicator.handles
    found = {
        "losses": [float(loss) for loss in losses],
        "model": bits(handle.average()),
        "payload": handle.meter.payload_bytes,
        "ddp": isinstance(wrapped, DistributedDataParallel),
    }
    replicator.close()
    return found


@pytest.mark.parametrize("method", ["dense", "powersgd"])
def test_overlap_gives_the_same_model(method):
    plain, ddp = run(trained, method, ranks=2), run(trained, method, True, ranks=2)
    simulated = InProcessCluster(2).run(lambda: trained(method, True))
    assert [one.pop("ddp") for one in (plain[0], ddp[0], simulated[0])] == [False, True, False]
    assert plain[0]["model"] == ddp[0]["model"] == simulated[0]["model"]
    assert ddp[0]["payload"] == simulated[0]["payload"] < plain[0]["payload"], (
        "overlap sends no flags for unused parameters"
    )


def test_overlap_does_not_use_ddp_for_methods_whose_replicas_differ():
    first, second = InProcessCluster(2).run(lambda: trained("dpsgd", True))
    assert first["model"] == second["model"], "average() is the same on both"
    assert not first["ddp"]


@pytest.mark.parametrize("method", ["dense", "powergossip", "diloco"])
def test_a_single_replica_trains_with_any_method(method):
    found = trained(method)
    assert len(found["losses"]) == STEPS
    assert found["losses"][-1] < 1.5


def test_one_seed_gives_each_replica_different_random_numbers():
    def sampled() -> float:
        Replicator(seed=1)
        return float(torch.rand(()))

    assert len(set(InProcessCluster(4).run(sampled))) == 4
    assert InProcessCluster(4).run(sampled) == InProcessCluster(4).run(sampled)


def test_the_launchers_method_overrides_the_scripts(monkeypatch):
    monkeypatch.setenv(Replicator.VARIABLE, "int8")
    assert Replicator("dense").method == thinwire.notation_of(thinwire.strategy_of("int8"))
    monkeypatch.setenv(Replicator.VARIABLE, "no such thing")
    with pytest.raises(ValueError, match="no such thing"):
        Replicator("dense")


def test_run_without_steps_ends_with_the_inputs():
    replicator = Replicator()
    assert replicator.run(lambda context, i: i * 2, lambda context: [1, 2, 3]) == [2, 4, 6]
    assert replicator.step == 3


def test_iterate_yields_after_each_step():
    replicator, results = Replicator(), []
    for result in replicator.iterate(lambda context, i: i, lambda context: range(10), steps=4):
        results.append(result)
        assert replicator.step == len(results)
    assert results == [0, 1, 2, 3]


def test_random_numbers_drawn_in_a_step_do_not_change_the_inputs():
    def inputs(draws: bool) -> list[float]:
        replicator = Replicator(seed=2)

        def step(context: thinwire.Context, x: Tensor) -> float:
            if draws:
                torch.rand(100)
            return float(x)

        return replicator.run(step, lambda context: (torch.rand(()) for _ in range(5)))

    assert inputs(True) == inputs(False)
    assert len(set(inputs(True))) == 5


def test_per_replica_batch_size_divides_evenly_or_is_an_error():
    def share() -> int:
        return Replicator().context.per_replica_batch_size(12)

    assert InProcessCluster(3).run(share) == [4, 4, 4]
    with pytest.raises(ValueError, match="a batch of 12 cannot be divided evenly by 5 replicas"):
        InProcessCluster(5).run(share)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"replicas": 3}, "2 ranks were launched, which cannot form 3 replicas of 1 devices each"),
        ({"devices_per_replica": 3}, "2 ranks were launched, which cannot form replicas of 3 devices each"),
        ({"replicas": 0}, "replicas is 1 or more, not 0"),
        ({"devices_per_replica": 0}, "devices_per_replica is 1 or more, not 0"),
        ({"method": "topkk"}, "did you mean 'topk'"),
    ],
)
def test_settings_that_do_not_match_the_launch_are_an_error(settings, problem):
    with pytest.raises(ValueError, match=problem):
        InProcessCluster(2).run(lambda: Replicator(**settings))


def test_several_replicas_in_one_process_without_a_script_are_an_error():
    with pytest.raises(ValueError, match="use `thinwire run`, or torchrun"):
        Replicator(replicas=2)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [({"steps": -1}, "steps is 0 or more, not -1"), ({"every": 5}, "every=5 needs a folder")],
)
def test_invalid_arguments_of_run_are_an_error(settings, problem):
    with pytest.raises(ValueError, match=problem):
        Replicator().run(lambda context, i: i, lambda context: range(3), **settings)


def test_keeping_two_objects_under_one_name_is_an_error():
    replicator, schedule = Replicator(), nn.Linear(1, 1)
    replicator.keep(average=schedule)
    with pytest.raises(ValueError, match="'average' is kept already"):
        replicator.keep(average=schedule)


def two_models() -> list[list[list[float]]]:
    replicator = Replicator("topk", seed=1)
    models = [nn.Linear(30, 20), nn.Linear(20, 10)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    for model, optimizer in zip(models, optimizers, strict=True):
        replicator.wrap(model, optimizer)

    def step(context: thinwire.Context, x: Tensor) -> None:
        for model, optimizer, y in ((models[0], optimizers[0], x), (models[1], optimizers[1], models[0](x))):
            optimizer.zero_grad()
            model(y).square().mean().backward()
            optimizer.step()

    replicator.run(step, lambda context: (torch.randn(4, 30) for _ in range(3)))
    return [bits(model) for model in models]


def test_two_models_with_an_optimizer_each_stay_synchronized():
    first, second = InProcessCluster(2).run(two_models)
    assert first == second == run(two_models, ranks=2)[1]


@pytest.mark.parametrize(("steps", "compared"), [(3, 0), (4, 1), (9, 2)])
def test_local_steps_are_not_compared(steps, compared):
    def replica() -> int:
        replicator = Replicator("LocalSGD(Identity(), every=4)", seed=4)
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        replicator.wrap(model, optimizer)
        before = replicator.meter.rounds

        def step(context: thinwire.Context, batch: tuple[Tensor, Tensor]) -> None:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
            optimizer.step()

        replicator.run(step, batches, steps)
        return replicator.meter.rounds - before - 4  # without the checks at the start and end of run(), and of lengths

    assert InProcessCluster(2).run(replica) == [compared] * 2
