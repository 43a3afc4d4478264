"""What goes wrong on one rank, or between DDP and thinwire, is told; nobody waits for what will not come."""

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
from .training import TINY_BUCKETS, all_same, classifier, loss_of, parameters, refusal, sgd, train


def is_last() -> bool:
    return dist.get_rank() == dist.get_world_size() - 1


def attached_with_trouble(method: str, on_nonfinite: str) -> tuple[str, str]:
    ddp = DistributedDataParallel(classifier())
    told = refusal(lambda: thinwire.attach(ddp, method if is_last() else "topk", on_nonfinite=on_nonfinite))
    train(ddp, sgd(ddp), range(2))  # and DDP goes on by itself
    return told


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("topkk", "did you mean 'topk'"),
        ("TopK(7)", "between 0 and 1"),
        ("Server(Sign(), Sign(), rank=5)", "only 2 ranks"),
    ],
)
def test_a_mistake_on_one_rank_is_told_to_all(method: str, expected: str) -> None:
    for kind, text in run(attached_with_trouble, method, "raise"):
        assert kind in ("ValueError", "NotationError")
        assert expected in text


def groups_of_some() -> dict:
    alone = dist.new_group([0])  # which only rank 0 is in, so the ranks are in different numbers of groups
    ddp = DistributedDataParallel(classifier())
    handle = thinwire.attach(ddp, "powersgd")
    train(ddp, sgd(ddp), range(2))
    handle.detach()
    del alone
    return parameters(ddp)


def test_ranks_may_be_in_different_numbers_of_groups() -> None:
    assert all_same(run(groups_of_some))


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


def test_parameters_that_ddp_ignores_are_left_to_the_script() -> None:
    assert all_same(run(trained_with_ignored))


def trained_with_frozen(bucket_cap_mb: float | None) -> tuple[str, str]:
    ddp = DistributedDataParallel(classifier(), find_unused_parameters=True, bucket_cap_mb=bucket_cap_mb)
    ddp.module[0].bias.requires_grad_(False)
    thinwire.attach(ddp, "topk")
    return refusal(lambda: loss_of(ddp, 0).backward())


@pytest.mark.parametrize("bucket_cap_mb", [None, TINY_BUCKETS])
def test_a_parameter_frozen_between_ddp_and_attach_is_named_as_the_trouble(bucket_cap_mb: float | None) -> None:
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

    def failing(*talk: object) -> None:
        raise MemoryError("no room for the message")

    session.transport.run = failing  # on all ranks: one that failed alone would leave the others waiting
    told = [refusal(lambda: loss_of(ddp, 2).backward())]
    del session.transport.run
    optimizer.zero_grad()
    told.append(refusal(lambda: loss_of(ddp, 3).backward()))
    return told


def test_after_an_error_in_the_exchange_no_step_mixes_with_another() -> None:
    for first, second in run(trained_after_an_error):
        assert first == ("MemoryError", "no room for the message")
        assert second[0] == "RuntimeError"
        assert "out of step" in second[1]


def own_groups() -> list[bool]:
    some = dist.new_group(list(range(dist.get_world_size())), backend="gloo")
    transport = ProcessGroupTransport(some)
    return [dist.get_backend(transport.group) == "gloo", transport.gather(b"x") == [b"x"] * dist.get_world_size()]


def test_the_own_group_speaks_like_the_one_it_is_made_for() -> None:
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
def test_ranks_that_do_not_compute_alike_are_told_so_where_it_matters(method: str, expected: int) -> None:
    for told in run(warned_of_threads, method):
        assert len(told) == expected
        assert all("2 threads" in text and "1 threads" in text for text in told)


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
def test_a_method_that_says_as_much_as_dense_is_told_so_even_if_its_payload_is_the_gradient(method, ranks) -> None:
    for told in run(warned_of, method, ranks=ranks):
        assert len(told) == 1
        assert "saves nothing" in told[0]
