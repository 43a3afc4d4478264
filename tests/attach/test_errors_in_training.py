"""Errors on one rank, or between DDP and thinwire, are raised on all ranks, and no rank waits forever."""

import warnings

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire
from thinwire import extend
from thinwire.transports import ProcessGroupTransport

from .processes import run
from .training import TINY_BUCKETS, all_same, classifier, error_of, loss_of, parameters, sgd, train


def is_last() -> bool:
    return dist.get_rank() == dist.get_world_size() - 1


def attach_error(method: str, on_nonfinite: str) -> tuple[str, str]:
    ddp = DistributedDataParallel(classifier())
    error = error_of(lambda: thinwire.attach(ddp, method if is_last() else "topk", on_nonfinite=on_nonfinite))
    train(ddp, sgd(ddp), range(2))  # with plain DDP
    return error


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("topkk", "did you mean 'topk'"),
        ("TopK(7)", "between 0 and 1"),
        ("Server(Sign(), Sign(), rank=5)", "only 2 ranks"),
    ],
)
def test_a_wrong_method_on_one_rank_is_an_error_on_all_ranks(method: str, expected: str) -> None:
    for kind, text in run(attach_error, method, "raise"):
        assert kind in ("ValueError", "NotationError")
        assert expected in text


def different_groups() -> dict:
    group = dist.new_group([0])  # only rank 0 is in it, so the ranks are in different numbers of groups
    ddp = DistributedDataParallel(classifier())
    handle = thinwire.attach(ddp, "powersgd")
    train(ddp, sgd(ddp), range(2))
    handle.detach()
    del group
    return parameters(ddp)


def test_ranks_may_be_in_different_numbers_of_groups() -> None:
    assert all_same(run(different_groups))


def detached_in_another_order() -> dict:
    models = [DistributedDataParallel(classifier()) for _ in range(2)]
    handles = [thinwire.attach(model, "topk") for model in models]
    for handle in handles if is_last() else reversed(handles):
        handle.detach()
    again = [thinwire.attach(model, "topk") for model in models]
    for model in models:
        train(model, sgd(model), range(2))
    for handle in again:
        handle.detach()
    return parameters(models[0])


def test_ranks_may_detach_in_different_orders() -> None:
    assert all_same(run(detached_in_another_order))


def trained_with_ignored() -> dict:
    model = classifier()
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ["0.bias"])
    ddp = DistributedDataParallel(model)
    thinwire.attach(ddp, "topk")
    train(ddp, sgd(ddp), range(3))
    return {name: p for name, p in parameters(ddp).items() if name != "0.bias"}


def test_parameters_that_ddp_ignores_are_not_exchanged() -> None:
    assert all_same(run(trained_with_ignored))


def trained_with_frozen(bucket_cap_mb: float | None) -> tuple[str, str]:
    ddp = DistributedDataParallel(classifier(), find_unused_parameters=True, bucket_cap_mb=bucket_cap_mb)
    ddp.module[0].bias.requires_grad_(False)
    thinwire.attach(ddp, "topk")
    return error_of(lambda: loss_of(ddp, 0).backward())


@pytest.mark.parametrize("bucket_cap_mb", [None, TINY_BUCKETS])
def test_a_parameter_frozen_between_ddp_and_attach_is_an_error_that_names_it(bucket_cap_mb: float | None) -> None:
    for kind, text in run(trained_with_frozen, bucket_cap_mb):
        assert kind == "ValueError"
        assert "frozen" in text
        assert "0.bias" in text


def trained_after_an_error() -> list[tuple[str, str]]:
    ddp = DistributedDataParallel(classifier())
    handle = thinwire.attach(ddp, "topk")
    optimizer = sgd(ddp)
    train(ddp, optimizer, range(2))
    session = handle._session

    def failing(*exchange: object) -> None:
        raise MemoryError("no room for the message")

    session.transport.run = failing  # on all ranks: if one failed alone, the others would wait
    errors = [error_of(lambda: loss_of(ddp, 2).backward())]
    del session.transport.run
    optimizer.zero_grad()
    errors.append(error_of(lambda: loss_of(ddp, 3).backward()))
    return errors


def test_after_an_error_in_the_exchange_every_later_step_raises() -> None:
    for first, second in run(trained_after_an_error):
        assert first == ("MemoryError", "no room for the message")
        assert second[0] == "RuntimeError"
        assert "out of step" in second[1]


def own_groups() -> list[bool]:
    gloo = dist.new_group(list(range(dist.get_world_size())), backend="gloo")
    transport = ProcessGroupTransport(gloo)
    return [dist.get_backend(transport.group) == "gloo", transport.gather(b"x") == [b"x"] * dist.get_world_size()]


def test_the_transports_group_has_the_backend_of_the_given_group() -> None:
    assert all(all(result) for result in run(own_groups))


def warned_of_threads(method: str) -> list[str]:
    threads = torch.get_num_threads()
    torch.set_num_threads(2 if is_last() else 1)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            thinwire.attach(DistributedDataParallel(classifier()), method).detach()
    finally:
        torch.set_num_threads(threads)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize(("method", "expected"), [("powersgd", 1), ("topk", 0)])
def test_ranks_with_different_arithmetic_warn_for_methods_that_depend_on_it(method: str, expected: int) -> None:
    for warned in run(warned_of_threads, method):
        assert len(warned) == expected
        assert all("2 threads" in text and "1 threads" in text for text in warned)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


def warned_of(method: extend.Codec) -> list[str]:
    ddp = DistributedDataParallel(Layer())
    handle = thinwire.attach(ddp, method)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            ddp(torch.randn(4, 64)).sum().backward()
    handle.detach()
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("method", [thinwire.TopK(1.0), thinwire.Nonzero()], ids=repr)
def test_a_method_that_sends_as_much_as_dense_warns(method, ranks) -> None:
    for warned in run(warned_of, method, ranks=ranks):
        assert len(warned) == 1
        assert "saves nothing" in warned[0]
