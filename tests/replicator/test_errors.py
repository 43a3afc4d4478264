"""Errors on one replica are reported by all; close() detaches; invalid arguments are errors."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

import thinwire
from tests.attach.processes import run
from thinwire import Replicator
from thinwire.simulate import InProcessCluster
from thinwire.transports import failure_agreement

EITHER = pytest.mark.parametrize("ranks", ["threads", "processes"])


def on(ranks: str, function: Callable[..., Any], *args: Any, count: int = 2) -> list[Any]:
    return (
        InProcessCluster(count).run(lambda: function(*args))
        if ranks == "threads"
        else run(function, *args, ranks=count)
    )


def error_of(act: Callable[[], Any]) -> str:
    try:
        act()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def wrapped(method: str, overlap: bool = False) -> tuple[Replicator, nn.Module, torch.optim.Optimizer]:
    replicator = Replicator(method, seed=1)
    model = nn.Linear(6, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return replicator, *replicator.wrap(model, optimizer, overlap=overlap)


def average_on_one_replica() -> str:
    replicator, *_ = wrapped("dense")
    act = replicator.handles[0].average if replicator.rank == 0 else replicator.context.barrier
    return error_of(act)


@EITHER
def test_average_on_one_replica_only_is_an_error_on_all(ranks):
    first, second = on(ranks, average_on_one_replica)
    assert first == second
    assert "replica 0 calls average() of wrap() number 1 at" in first
    assert "replica 1 calls barrier at" in first


def checkpoint_on_one_replica(folder: str) -> str:
    replicator = Replicator()
    where = folder if replicator.rank else None
    return error_of(lambda: replicator.run(lambda c, i: i, lambda c: [1], checkpoint=where))


@EITHER
def test_a_checkpoint_on_one_replica_only_is_an_error_on_all(ranks, tmp_path):
    first, second = on(ranks, checkpoint_on_one_replica, str(tmp_path))
    assert first == second
    assert "replica 0 calls run() until inputs end at" in first
    assert "replica 1 calls run() until inputs end, saved every None steps at" in first


def stops_in_a_step(method: str, overlap: bool) -> str:
    replicator, model, optimizer = wrapped(method, overlap)

    def step(context: thinwire.Context, i: int) -> None:
        if i == 1 and context.rank == 1:
            raise KeyError("boom")
        optimizer.zero_grad()
        model(torch.ones(1, 6)).sum().backward()
        optimizer.step()

    # A replica that leaves without notifying the others would hang here.
    with mock.patch.object(failure_agreement, "READ_TIMEOUT", 300.0):
        return error_of(lambda: replicator.run(step, lambda context: range(4)))


@EITHER
@pytest.mark.parametrize(("method", "overlap"), [("dense", False), ("dense", True), ("dpsgd", False)])
def test_replicas_waiting_in_a_methods_exchange_report_why_another_stopped(method, overlap, ranks):
    first, second = on(ranks, stops_in_a_step, method, overlap)
    assert second == "KeyError: 'boom'"
    assert "rank 1 has stopped" in first
    assert "boom" in first


def unserializable_note() -> str:
    replicator = Replicator()
    note = object() if replicator.rank else "fine"
    return error_of(lambda: replicator.run(lambda context, i: context.gather_notes(note), lambda context: [1]))


@EITHER
def test_a_note_that_is_not_json_is_reported_by_all(ranks):
    first, second = on(ranks, unserializable_note)
    assert "TypeError: Object of type object is not JSON serializable" in second
    assert first.startswith("ContractError: rank 1 has stopped: TypeError")


class Detaching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(3.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x.detach()


def through_a_part_that_detaches() -> list[float]:
    context = Replicator(devices_per_replica=2).context
    part = context.logical_device(1).place(Detaching())
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    (part(x) * x).sum().backward()
    return x.grad.tolist()


@EITHER
def test_a_part_may_detach_its_inputs(ranks):
    assert on(ranks, through_a_part_that_detaches) == [[3.0, 6.0]] * 2, "the gradient of the other factor only"


def parts_in_different_orders() -> str:
    replicator = Replicator(devices_per_replica=2)
    parts = [replicator.context.logical_device(i).place(nn.Linear(2, 2)) for i in (0, 1)]
    first = replicator.context.logical_device(0).here
    return error_of(lambda: [part(torch.ones(1, 2)) for part in (parts if first else parts[::-1])])


@EITHER
def test_calling_parts_in_different_orders_is_an_error_on_all_devices(ranks):
    first, second = on(ranks, parts_in_different_orders)
    assert first == second
    assert "the devices of replica 0 are out of step" in first
    assert "device 0 of replica 0 calls a part on logical device 0" in first
    assert "device 1 of replica 0 calls a part on logical device 1" in first


def one_device_stops() -> str:
    replicator = Replicator(devices_per_replica=2)
    part = replicator.context.logical_device(1).place(nn.Linear(2, 2))

    def step(context: thinwire.Context, i: int) -> None:
        if i and context.logical_device(1).here:
            raise KeyError("boom")
        part(torch.ones(1, 2))

    return error_of(lambda: replicator.run(step, lambda context: range(3)))


@EITHER
def test_the_other_device_reports_the_error_of_one_that_stopped(ranks):
    first, second = on(ranks, one_device_stops)
    assert second == "KeyError: 'boom'"
    assert first.startswith("ContractError: device 1 of replica 0 has stopped: KeyError: 'boom' at test_errors.py")
    assert "while device 0 of replica 0 calls a part" in first


def closed_and_started_again() -> tuple[int, list[int]]:
    replicator, model, optimizer = wrapped("dense")
    replicator.close()
    after = Replicator()
    if after.rank == 0:  # locally, without thinwire
        model(torch.ones(1, 6)).sum().backward()
        optimizer.step()
    return after.context.all_sum(1), after.run(lambda context, i: context.all_sum(i), lambda context: range(3))


@EITHER
def test_after_close_models_train_locally_and_a_new_replicator_works(ranks):
    assert on(ranks, closed_and_started_again) == [(2, [0, 2, 4])] * 2


def test_a_second_run_makes_further_steps():
    replicator = Replicator()
    for _ in range(2):
        assert replicator.run(lambda context, i: i, lambda context: range(9), steps=3) == [0, 1, 2]
    assert replicator.step == 6


def unseeded() -> list[float]:
    return Replicator().run(lambda context, x: float(x), lambda context: (torch.rand(()) for _ in range(2)))


@EITHER
def test_unseeded_replicas_have_different_inputs(ranks):
    first, second = on(ranks, unseeded)
    assert not set(first) & set(second)


def test_a_weighted_mean_of_halves_does_not_overflow():
    def mean() -> float:
        context = Replicator().context
        return float(context.weighted_mean(torch.tensor(2.0 + context.rank, dtype=torch.float16), weight=40_000))

    assert InProcessCluster(2).run(mean) == [2.5, 2.5]


def test_collectives_of_empty_dicts_return_empty_dicts():
    context = Replicator().context
    assert context.all_gather({}) == context.all_max({}) == context.all_sum({}) == context.broadcast({}) == {}


class StatefulRandomInputs:
    """Inputs with a state_dict, which also draw random numbers."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[float]:
        while True:
            self.at += 1
            yield float(torch.rand(()))

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


def test_stateful_inputs_resume_their_random_numbers(tmp_path):
    def sampled(steps: int, folder: str | None) -> list[float]:
        return Replicator(seed=1).run(
            lambda context, x: x, lambda context: StatefulRandomInputs(), steps, checkpoint=folder
        )

    assert sampled(2, str(tmp_path)) + sampled(5, str(tmp_path)) == sampled(5, None)


class Unpicklable:
    def state_dict(self) -> dict[str, object]:
        return {"thing": object()}

    def load_state_dict(self, state: Any) -> None: ...


def test_a_state_that_could_not_be_loaded_is_an_error_when_saving(tmp_path):
    replicator = Replicator()
    replicator.keep(odd=Unpicklable())
    with pytest.raises(ValueError, match="the state of 'odd' cannot be saved"):
        replicator.run(lambda context, i: i, lambda context: [1], checkpoint=tmp_path)
    assert not list(tmp_path.glob("*.pt"))


def test_replicas_of_several_devices_in_one_process(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import thinwire\nc = thinwire.Replicator(replicas=2, devices_per_replica=2).context\n"
        "print(c.rank, [c.logical_device(i).here for i in range(2)])\n"
    )
    output = subprocess.run([sys.executable, script], check=True, capture_output=True, text=True).stdout
    assert sorted(output.splitlines()) == ["0 [False, True]", "0 [True, False]", "1 [False, True]", "1 [True, False]"]


def test_a_replicator_shared_between_ranks_of_one_process_is_an_error():
    shared: list[Replicator] = []

    def act() -> None:
        if not shared:
            shared.append(Replicator(checked=False))
        shared[0].context.all_sum(1)

    with pytest.raises(RuntimeError, match=r"rank 1 uses the transport of rank 0|rank 0 uses the transport of rank 1"):
        InProcessCluster(2).run(act)


def test_training_can_restart_after_an_error_that_all_ranks_caught():
    def act() -> int:
        def diverge(context: thinwire.Context, i: int) -> None:
            raise ValueError("diverged")

        replicator = Replicator()
        assert error_of(lambda: replicator.run(diverge, lambda context: [1])) == "ValueError: diverged"
        replicator.close()
        return Replicator().context.all_sum(1)

    cluster = InProcessCluster(2)
    assert cluster.run(act) == [2, 2]
    assert cluster.run(act) == [2, 2], "second run"


def test_a_failed_wrap_leaves_no_hooks():
    def act() -> int:
        replicator = Replicator()
        model = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with pytest.raises(ValueError, match="bogus"):
            replicator.wrap(model, optimizer, on_nonfinite="bogus")
        replicator.wrap(model, optimizer)
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        return replicator.handles[0].meter.steps

    assert InProcessCluster(2).run(act) == [1, 1]


def test_a_length_that_overflows_counts_as_unknown():
    def act() -> list[int]:
        return Replicator().run(lambda context, i: i, lambda context: range(10**20), steps=2)

    assert InProcessCluster(2).run(act) == [[0, 1]] * 2


@pytest.mark.parametrize(
    ("act", "problem"),
    [
        (lambda r: r.run(lambda c, x: x, [1, 2]), r"takes a function, input_fn\(context\), not a list"),
        (lambda r: r.run(None, lambda c: [1]), r"takes a function, step_fn\(context, batch\), not a NoneType"),
        (lambda r: r.run(lambda c, x: x, lambda c: None), "must return an iterable of batches, not None"),
        (
            lambda r: r.wrap(torch.optim.SGD(nn.Linear(2, 1).parameters()), nn.Linear(2, 1)),
            "a model and its optimizer, in this order, not SGD and Linear",
        ),
        (lambda r: r.keep(epoch=3), "'epoch' cannot be kept: int has no state_dict"),
        (lambda r: r.context.share(iter([1, 2])), r"share\(\) takes a dataset or a list, .* not a list_iterator"),
        (
            lambda r: r.context.share(torch.utils.data.DataLoader([1, 2])),
            "to use a DataLoader, construct it from the share",
        ),
    ],
)
def test_arguments_of_a_wrong_type_are_an_error(act, problem):
    with pytest.raises(TypeError, match=problem):
        act(Replicator())


@pytest.mark.parametrize("used", [True, False])
def test_stepping_another_optimizer_than_the_wrapped_one_warns_once(used, recwarn):
    replicator = Replicator(seed=1)
    model = nn.Linear(3, 2)
    _, wrapped = replicator.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    optimizer = wrapped if used else torch.optim.SGD(model.parameters(), lr=0.1)

    def step(context: thinwire.Context, x: Tensor) -> None:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    def evaluate(context: thinwire.Context, x: Tensor) -> None:
        model(x)

    for act in (evaluate, step, step):  # the warning appears once
        replicator.run(act, lambda context: [torch.ones(1, 3)])
    messages = [str(warning.message) for warning in recwarn if "has made no step" in str(warning.message)]
    assert len(messages) == (0 if used else 1)
