"""LGC on real ranks: equal to the reference run, replicas equal to the bit, and resumed in each phase."""

import copy
import warnings
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

import thinwire
from thinwire import inspect, simulate

from ..reference_run import ReferenceRun
from .processes import run
from .training import all_same, classifier, loss_of, parameters, same, sgd

# Two dense steps, eight that learn, then codes, whose error is checked in every third step.
LEARNING = "8, rate=3e-3, check_every=3, bound=0.999"
RING = f"WarmUp(2, DGC(by=LeaderTopK(0.05, values=LGC({LEARNING}), order='value')))"
SENT = f"WarmUp(2, DGC(by=LeaderTopK(0.05, values=LGC({LEARNING}, weights='sent', codec=Quantize(8)), hold=2)))"
HELD = "WarmUp(2, ErrorFeedback(LeaderTopK(0.05, values=Quantize(4), hold=3)))"
SERVED = f"WarmUp(2, DGC(by=Server(LeaderTopK(0.05, values=LGCServer({LEARNING}), order='value'), Identity())))"
DEDICATED = (
    f"WarmUp(2, DGC(by=Server(LeaderTopK(0.05, values=LGCServer({LEARNING})), Identity(), rank=1, dedicated=True)), "
    "first=Server(Identity(), Identity(), rank=1, dedicated=True))"
)
STEPS = 18


class Deeper(nn.Sequential):
    """A first layer, a last one, and two between them that share a conversation."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        super().__init__(classifier()[0], nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Linear(64, 10))


def attached(method: str) -> tuple[nn.Module, SGD, thinwire.Handle]:
    """Attached to a DDP model, or to a plain module if the method has a dedicated server."""
    net: nn.Module = Deeper()
    if inspect.dedicated_servers(thinwire.strategy_of(method)):
        optimizer = sgd(net)
        return net, optimizer, thinwire.attach(net, method, optimizer=optimizer)
    net = DistributedDataParallel(net)
    return net, sgd(net), thinwire.attach(net, method)


def train(net: nn.Module, optimizer: SGD, steps: range, worker: int | None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the error of a learned code
        for step in steps:
            optimizer.zero_grad()
            if worker is not None:
                loss_of(net, step, worker).backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def trained(method: str) -> dict[str, Any]:
    net, optimizer, handle = attached(method)
    worker = None if handle.serves else dist.get_rank()
    train(net, optimizer, range(STEPS), worker)
    ((_, learning),) = handle.learning().items() or ((None, None),)
    return {
        "parameters": parameters(net),
        "learning": learning,
        "payload": handle.meter.payload_bytes,
        "code_error": handle.meter.code_error,
        "relearned": handle.meter.relearned,
        "kinds": {layer.kind for layer in handle.layers().values()},
    }


def run_reference(method: str, ranks: int) -> tuple[list[dict[str, Tensor]], ReferenceRun]:
    """The same training in one process."""
    nets = [Deeper() for _ in range(ranks)]
    optimizers = [sgd(net) for net in nets]
    strategy = thinwire.strategy_of(method)
    serving = inspect.dedicated_servers(strategy)
    reference = ReferenceRun(
        strategy, [simulate.replica_of(net, rank=rank, size=ranks) for rank, net in enumerate(nets)]
    )
    for step in range(STEPS):
        for rank, (net, optimizer) in enumerate(zip(nets, optimizers, strict=True)):
            optimizer.zero_grad()
            if rank not in serving:
                loss_of(net, step, rank).backward()  # type: ignore[no-untyped-call]
        reference.before_update()
        for optimizer in optimizers:
            optimizer.step()
        reference.after_update()
        assert all_same(parameters(net) for net in nets), f"replicas differ after step {step}"
    return [parameters(net) for net in nets], reference


@pytest.mark.filterwarnings("ignore:after step")
@pytest.mark.parametrize(("method", "ranks"), [(RING, 4), (SENT, 2), (HELD, 2), (SERVED, 4), (DEDICATED, 3)])
def test_real_ranks_have_the_values_of_the_reference_run(method: str, ranks: int) -> None:
    results = run(trained, method, ranks=ranks)
    expected, reference = run_reference(method, ranks)
    assert all_same(result["parameters"] for result in results)
    assert same(results[0]["parameters"], expected[0])
    assert [result["payload"] for result in results] == [meter.payload_bytes for meter in reference.meters]
    assert all("joined ones" in result["kinds"] for result in results)
    if "LGC" in method:
        assert len({result["learning"] for result in results}) == 1, "all ranks agree on whether they learn"
        assert not results[0]["learning"].training, "no codes were sent"
        assert results[0]["learning"].error == results[0]["code_error"] == reference.meters[0].code_error
        assert results[0]["relearned"] == reference.meters[0].relearned


@pytest.mark.filterwarnings("ignore:after step")
@pytest.mark.parametrize("method", [RING, SERVED])
def test_eight_replicas_stay_equal_to_the_bit(method: str) -> None:
    found, reference = run_reference(method, 8)
    assert all_same(found)
    (learning,) = reference.learning().values()
    assert not learning.training


def resumed(method: str, at: tuple[int, ...]) -> list[tuple[dict[str, Tensor], dict[str, Tensor]]]:
    """The parameters of an uninterrupted run and of a resumed one, for each step of `at`."""
    pairs = []
    for step in at:
        net, optimizer, handle = attached(method)
        worker = None if handle.serves else dist.get_rank()
        train(net, optimizer, range(step), worker)
        saved = copy.deepcopy((net.state_dict(), optimizer.state_dict(), handle.state_dict()))
        train(net, optimizer, range(step, STEPS), worker)
        uninterrupted, payload_bytes = parameters(net), handle.meter.payload_bytes
        for part, state in zip((net, optimizer, handle), saved, strict=True):
            part.load_state_dict(state)  # type: ignore[attr-defined]
        train(net, optimizer, range(step, STEPS), worker)
        assert handle.meter.payload_bytes == payload_bytes
        handle.detach()
        pairs.append((uninterrupted, parameters(net)))
    return pairs


@pytest.mark.parametrize(("method", "ranks"), [(RING, 2), (HELD, 2), (DEDICATED, 3)])
def test_training_resumes_to_the_bit_in_every_phase(method: str, ranks: int) -> None:
    for pairs in run(resumed, method, (1, 5, 12), ranks=ranks):
        for uninterrupted, again in pairs:
            assert same(uninterrupted, again)


def test_a_code_with_a_large_error_warns_and_is_learned_again() -> None:
    code = "LGC(4, check_every=3, bound=0.01)"  # which no learned code reaches
    method = f"WarmUp(2, DGC(by=LeaderTopK(0.05, values={code}, order='value')))"
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        _, reference = run_reference(method, 2)
    assert [str(warning.message).split(",")[0] for warning in warned] == [f"after step {n}" for n in (6, 10, 14, 18)]
    assert str(warned[0].message).endswith("values are sent without it until a better one is learned")
    assert all(meter.relearned == 4 for meter in reference.meters), "after 6, 10, 14 and 18 steps"
    assert reference.meters[0].as_dict()["thinwire/relearned"] == 4
    assert reference.meters[0].code_error > 0.01


def test_the_error_is_checked_after_the_learning_rate_drops() -> None:
    # The gradients change with it. The error is checked every third step; if too large, the code is learned again.
    method = f"WarmUp(2, DGC(by=LeaderTopK(0.05, values=LGC({LEARNING.replace('0.999', '0.9')}), order='value')))"
    nets = [Deeper() for _ in range(2)]
    optimizers = [sgd(net) for net in nets]
    replicas = [simulate.replica_of(net, rank=rank, size=2) for rank, net in enumerate(nets)]
    reference = ReferenceRun(thinwire.strategy_of(method), replicas)
    checks: list[tuple[float, bool]] = []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for step in range(60):
            for rank, (net, optimizer) in enumerate(zip(nets, optimizers, strict=True)):
                optimizer.param_groups[0]["lr"] = 0.1 if step < 40 else 0.001
                optimizer.zero_grad()
                loss_of(net, step, rank).backward()  # type: ignore[no-untyped-call]
            before = reference.meters[0].code_error
            reference.before_update()
            for optimizer in optimizers:
                optimizer.step()
            reference.after_update()
            (learning,) = reference.learning().values() or (None,)
            if step == 39:
                assert not learning.training, "codes were never sent"
            if learning is not None and step >= 40 and learning.error != before:
                checks.append((learning.error, learning.training))
    assert len(checks) >= 20 // 3, "the error is checked after the drop"
    assert all(training for error, training in checks if error > 0.9)
    assert len(warned) == reference.meters[0].relearned
    assert all_same(parameters(net) for net in nets)
