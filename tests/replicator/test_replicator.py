"""A replica's step, run with any method between the replicas."""

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
def test_saying_it_in_backward_gives_the_same_model(method):
    plain, ddp = run(trained, method, ranks=2), run(trained, method, True, ranks=2)
    simulated = InProcessCluster(2).run(lambda: trained(method, True))
    assert [one.pop("ddp") for one in (plain[0], ddp[0], simulated[0])] == [False, True, False]
    assert plain[0]["model"] == ddp[0]["model"] == simulated[0]["model"]
    assert ddp[0]["payload"] == simulated[0]["payload"] < plain[0]["payload"], "nothing about which have a gradient"


def test_methods_whose_replicas_differ_have_nothing_to_say_in_backward():
    first, second = InProcessCluster(2).run(lambda: trained("dpsgd", True))
    assert first["model"] == second["model"], "the mean of both"
    assert not first["ddp"]


@pytest.mark.parametrize("method", ["dense", "powergossip", "diloco"])
def test_one_replica_trains_alone_with_any_method(method):
    found = trained(method)
    assert len(found["losses"]) == STEPS
    assert found["losses"][-1] < 1.5


def test_replicas_draw_numbers_of_their_own_from_one_seed():
    def drawn() -> float:
        Replicator(seed=1)
        return float(torch.rand(()))

    assert len(set(InProcessCluster(4).run(drawn))) == 4
    assert InProcessCluster(4).run(drawn) == InProcessCluster(4).run(drawn)


def test_the_launchers_method_goes_first(monkeypatch):
    monkeypatch.setenv(Replicator.VARIABLE, "int8")
    assert Replicator("dense").method == thinwire.notation_of(thinwire.strategy_of("int8"))
    monkeypatch.setenv(Replicator.VARIABLE, "no such thing")
    with pytest.raises(ValueError, match="no such thing"):
        Replicator("dense")


def test_inputs_come_to_their_end():
    replicator = Replicator()
    assert replicator.run(lambda context, i: i * 2, lambda context: [1, 2, 3]) == [2, 4, 6]
    assert replicator.step == 3


def test_steps_are_made_one_by_one():
    replicator, made = Replicator(), []
    for outcome in replicator.iterate(lambda context, i: i, lambda context: range(10), steps=4):
        made.append(outcome)
        assert replicator.step == len(made)
    assert made == [0, 1, 2, 3]


def test_what_a_model_draws_does_not_change_its_inputs():
    def inputs(draws: bool) -> list[float]:
        replicator = Replicator(seed=2)

        def step(context: thinwire.Context, x: Tensor) -> float:
            if draws:
                torch.rand(100)
            return float(x)

        return replicator.run(step, lambda context: (torch.rand(()) for _ in range(5)))

    assert inputs(True) == inputs(False)
    assert len(set(inputs(True))) == 5


def test_a_batch_is_divided_or_refused():
    def share() -> int:
        return Replicator().context.per_replica_batch_size(12)

    assert InProcessCluster(3).run(share) == [4, 4, 4]
    with pytest.raises(ValueError, match="a batch of 12 cannot be divided evenly among 5 replicas"):
        InProcessCluster(5).run(share)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"replicas": 3}, "2 ranks were launched, which are not 3 replicas of 1 devices each"),
        ({"devices_per_replica": 3}, "2 ranks were launched, which are not replicas of 3 devices each"),
        ({"replicas": 0}, "1 replica or more, not 0"),
        ({"devices_per_replica": 0}, "1 device or more, not 0"),
        ({"method": "topkk"}, "did you mean 'topk'"),
    ],
)
def test_what_does_not_go_with_the_launch_is_shown(settings, problem):
    with pytest.raises(ValueError, match=problem):
        InProcessCluster(2).run(lambda: Replicator(**settings))


def test_several_replicas_in_one_process_need_a_script():
    with pytest.raises(ValueError, match="use `thinwire run`, or torchrun"):
        Replicator(replicas=2)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [({"steps": -1}, "0 steps or more, not -1"), ({"every": 5}, "every=5 takes a folder")],
)
def test_a_run_that_cannot_be_is_shown(settings, problem):
    with pytest.raises(ValueError, match=problem):
        Replicator().run(lambda context, i: i, lambda context: range(3), **settings)


def test_what_is_kept_has_a_name_of_its_own():
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


def test_two_models_with_an_optimizer_each_stay_in_step():
    first, second = InProcessCluster(2).run(two_models)
    assert first == second == run(two_models, ranks=2)[1]


@pytest.mark.parametrize(("steps", "compared"), [(3, 0), (4, 1), (9, 2)])
def test_steps_in_which_nothing_is_said_are_not_compared(steps, compared):
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
        return replicator.meter.rounds - before - 4  # without the beginning and the end of run(), and lengths

    assert InProcessCluster(2).run(replica) == [compared] * 2
