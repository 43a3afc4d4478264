"""Local SGD: local steps, synchronizations, outer optimizers, compression and delays."""

import warnings

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, Optimizer

from thinwire import (
    Chain,
    DataParallel,
    ErrorFeedback,
    Identity,
    LocalSGD,
    NonFiniteError,
    OuterSGD,
    PowerSGD,
    Quantize,
    RandomK,
    TopK,
)

from ..helpers import same_bits
from .models import Ranks, close, loss_of, model

NESTEROV = OuterSGD(0.7, momentum=0.9, nesterov=True)


def momentum(m: nn.Module) -> Optimizer:
    return SGD(m.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)


def adam(m: nn.Module) -> Optimizer:
    return Adam(m.parameters(), lr=0.01)


def test_synchronizing_every_step_equals_data_parallel() -> None:
    local = Ranks(LocalSGD(Identity(), every=1), 4).train(20)
    dense = Ranks(DataParallel(Identity()), 4).train(20)
    close(local.parameters(), dense.parameters(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("make", [momentum, adam])
def test_between_synchronizations_replicas_train_locally_without_traffic(make: object) -> None:
    ranks = Ranks(LocalSGD(Identity(), every=5), 3, make)  # type: ignore[arg-type]
    alone = [model() for _ in range(3)]
    optimizers = [make(m) for m in alone]  # type: ignore[operator]
    for step in range(4):
        ranks.train(1)
        for rank, (m, optimizer) in enumerate(zip(alone, optimizers, strict=True)):
            optimizer.zero_grad()
            loss_of(m, step, rank).backward()
            optimizer.step()
            assert all(same_bits(ranks.parameters(rank)[n], p.detach()) for n, p in m.named_parameters())
    assert ranks.reference.meters[0].link_bytes == 0
    assert ranks.max_difference() > 0.01
    ranks.train(1)
    assert ranks.max_difference() == 0, "synchronized in this step"


def test_a_synchronization_sets_all_replicas_to_the_mean() -> None:
    ranks = Ranks(LocalSGD(Identity(), every=3), 4, momentum).train(2)
    local = Ranks(LocalSGD(Identity(), every=1000), 4, momentum).train(3)
    ranks.train(1)
    mean = {name: torch.stack([local.parameters(r)[name] for r in range(4)]).mean(0) for name in local.parameters()}
    close(ranks.parameters(), mean, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("outer", [OuterSGD(0.5), OuterSGD(0.7, momentum=0.9), NESTEROV], ids=repr)
def test_the_outer_optimizer_equals_torch_sgd_on_the_mean_change(outer: OuterSGD) -> None:
    """Its gradient is the negated mean change since the last synchronization."""
    ranks = Ranks(LocalSGD(Identity(), every=4, outer=outer), 3, adam)
    anchor = model()
    optimizer = SGD(anchor.parameters(), lr=outer.lr, momentum=outer.momentum, nesterov=outer.nesterov)
    alone = Ranks(LocalSGD(Identity(), every=1000), 3, adam)
    for _ in range(3):
        ranks.train(4)
        alone.train(4)
        for name, p in anchor.named_parameters():
            p.grad = torch.stack([p.detach() - alone.parameters(r)[name] for r in range(3)]).mean(0)
        optimizer.step()
        close(ranks.parameters(), dict(anchor.named_parameters()), rtol=1e-4, atol=1e-5)
        for m in alone.models:
            m.load_state_dict(anchor.state_dict())


def test_post_local_sgd_starts_with_data_parallel_steps() -> None:
    ranks = Ranks(LocalSGD(Identity(), every=4, after=6), 4, momentum).train(6)
    dense = Ranks(DataParallel(Identity()), 4, momentum).train(6)
    close(ranks.parameters(), dense.parameters(), rtol=0, atol=0)
    sent = ranks.reference.meters[0].link_bytes
    ranks.train(3)
    assert ranks.reference.meters[0].link_bytes == sent
    assert ranks.max_difference() > 0
    ranks.train(1)
    assert ranks.max_difference() == 0


def test_link_bytes_are_those_of_one_all_reduce_per_synchronization() -> None:
    dense, local = (Ranks(s, 4).train(20) for s in (DataParallel(Identity()), LocalSGD(Identity(), every=10)))
    dense_meter, local_meter = dense.reference.meters[0], local.reference.meters[0]
    model_bytes = sum(p.nbytes for p in model().parameters())
    assert local_meter.payload_bytes == 2 * model_bytes
    assert local_meter.dense_bytes == dense_meter.dense_bytes == 20 * model_bytes
    assert local_meter.link_bytes == dense_meter.link_bytes / 10


@pytest.mark.parametrize("reducer", [ErrorFeedback(TopK(0.1)), ErrorFeedback(PowerSGD(1)), Quantize(8)], ids=repr)
def test_local_changes_can_be_compressed_by_any_reducer(reducer: object) -> None:
    plain = Ranks(LocalSGD(Identity(), every=5), 4, momentum).train(60)
    compressed = Ranks(LocalSGD(reducer, every=5, fuse_below=0), 4, momentum).train(60)  # type: ignore[arg-type]
    assert compressed.max_difference() == 0
    assert compressed.reference.meters[0].link_bytes < plain.reference.meters[0].link_bytes
    initial = loss_of(model(), 999, 0).item()
    assert loss_of(compressed.models[0], 999, 0).item() < initial - 0.2


# --- synchronizations that overlap with local steps


@pytest.mark.parametrize("delay", [1, 2, 4])
def test_a_delayed_synchronization_keeps_the_updates_made_meanwhile(delay: int) -> None:
    """On landing, each replica moves by the difference between the mean and its own parameters at launch."""
    delayed = Ranks(LocalSGD(Identity(), every=4, delay=delay), 3, momentum).train(4)
    local = Ranks(LocalSGD(Identity(), every=1000), 3, momentum).train(4)
    assert delayed.max_difference() == local.max_difference() > 0, "messages in flight have no effect yet"
    launched = [dict(delayed.parameters(r)) for r in range(3)]
    delayed.train(delay - 1)
    before = [delayed.parameters(r) for r in range(3)]
    delayed.reference.land()
    for rank in range(3):
        for name, p in delayed.parameters(rank).items():
            mean = torch.stack([parameters[name] for parameters in launched]).mean(0)
            torch.testing.assert_close(p, before[rank][name] - launched[rank][name] + mean, rtol=1e-5, atol=1e-6)


def test_a_delayed_synchronization_lands_after_delay_steps() -> None:
    ranks = Ranks(LocalSGD(Identity(), every=4, delay=2), 3)
    landed = [ranks.train(1).reference.meters[0].link_bytes > 0 for _ in range(7)]
    assert landed == [False] * 5 + [True] * 2


def test_delayed_synchronizations_train_about_as_well() -> None:
    losses = {}
    for delay in (0, 3):
        ranks = Ranks(LocalSGD(Identity(), every=5, outer=NESTEROV, delay=delay), 4).train(100)
        mean = model()
        mean.load_state_dict(ranks.reference.consensus().means)
        losses[delay] = sum(loss_of(mean, 5000 + i, 0).item() for i in range(20)) / 20
    assert losses[3] < losses[0] + 0.1


# --- errors and warnings


def test_non_finite_parameters_raise_an_error_that_names_them() -> None:
    ranks = Ranks(LocalSGD(Identity(), every=2, fuse_below=0), 3).train(1)
    ranks.models[1][2].weight.data[0, 0] = torch.inf  # type: ignore[index,union-attr]
    ranks.reference.before_update()
    with pytest.raises(NonFiniteError, match=r"the parameters of 2\.weight"):
        ranks.reference.after_update()


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: LocalSGD(Identity(), every=0), "synchronizes every 1 step or more, not 0"),
        (lambda: LocalSGD(Identity(), every=2.5), "synchronizes every 1 step or more, not 2.5"),
        (lambda: LocalSGD(Identity(), every=4, delay=5), "a delay from 0 steps to every=4, not 5"),
        (lambda: LocalSGD(Identity(), after=-1), "begins after 0 steps or more, not -1"),
        (lambda: LocalSGD(Identity(), outer=0.7), r"such as OuterSGD\(0.7\), not 0.7"),
        (lambda: LocalSGD("dense"), "a codec or a reducer is needed here, not 'dense'"),
        (lambda: LocalSGD(Identity(), fuse_below=-1), "fuses tensors below 0 elements or more"),
        (lambda: OuterSGD(0.0), "a learning rate above 0 and up to 10, not 0.0"),
        (lambda: OuterSGD(1.0, momentum=1.0), "a momentum from 0 to below 1, not 1.0"),
        (lambda: OuterSGD(1.0, nesterov=True), "needs a momentum above 0"),
    ],
)
def test_an_invalid_setting_is_an_error(make: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        make()  # type: ignore[operator]


@pytest.mark.parametrize("codec", [TopK(0.01), RandomK(0.01), Chain(TopK(0.1), Quantize(4))], ids=repr)
def test_sparse_error_feedback_with_outer_momentum_warns(codec: object) -> None:
    with pytest.warns(UserWarning, match="is known to train badly"):
        LocalSGD(ErrorFeedback(codec), outer=NESTEROV)  # type: ignore[arg-type]


def test_other_combinations_do_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LocalSGD(ErrorFeedback(TopK(0.01)))
        LocalSGD(TopK(0.01), outer=NESTEROV)
        LocalSGD(ErrorFeedback(Quantize(8)), outer=NESTEROV)
