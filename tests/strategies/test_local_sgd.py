"""Replicas that take steps of their own and meet: when, what they say, and where they go from there."""

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


def test_one_step_and_a_whole_outer_step_are_data_parallel() -> None:
    local = Ranks(LocalSGD(Identity(), every=1), 4).train(20)
    dense = Ranks(DataParallel(Identity()), 4).train(20)
    close(local.parameters(), dense.parameters(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("make", [momentum, adam])
def test_between_meetings_every_replica_goes_its_own_way(make: object) -> None:
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
    assert ranks.apart() > 0.01
    ranks.train(1)
    assert ranks.apart() == 0, "they have met"


def test_a_meeting_is_the_mean_of_all() -> None:
    ranks = Ranks(LocalSGD(Identity(), every=3), 4, momentum).train(2)
    apart = Ranks(LocalSGD(Identity(), every=1000), 4, momentum).train(3)
    ranks.train(1)
    mean = {name: torch.stack([apart.parameters(r)[name] for r in range(4)]).mean(0) for name in apart.parameters()}
    close(ranks.parameters(), mean, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("outer", [OuterSGD(0.5), OuterSGD(0.7, momentum=0.9), NESTEROV], ids=repr)
def test_the_outer_optimizer_does_what_torchs_does(outer: OuterSGD) -> None:
    """The way back to the last meeting, as the gradient of a model that is stepped by torch.optim.SGD."""
    ranks = Ranks(LocalSGD(Identity(), every=4, outer=outer), 3, adam)
    anchor = model()
    stepped = SGD(anchor.parameters(), lr=outer.lr, momentum=outer.momentum, nesterov=outer.nesterov)
    alone = Ranks(LocalSGD(Identity(), every=1000), 3, adam)
    for _ in range(3):
        ranks.train(4)
        alone.train(4)
        for name, p in anchor.named_parameters():
            p.grad = torch.stack([p.detach() - alone.parameters(r)[name] for r in range(3)]).mean(0)
        stepped.step()
        close(ranks.parameters(), dict(anchor.named_parameters()), rtol=1e-4, atol=1e-5)
        for m in alone.models:
            m.load_state_dict(anchor.state_dict())


def test_post_local_sgd_begins_with_averaged_gradients() -> None:
    ranks = Ranks(LocalSGD(Identity(), every=4, after=6), 4, momentum).train(6)
    dense = Ranks(DataParallel(Identity()), 4, momentum).train(6)
    close(ranks.parameters(), dense.parameters(), rtol=0, atol=0)
    said = ranks.reference.meters[0].link_bytes
    ranks.train(3)
    assert ranks.reference.meters[0].link_bytes == said
    assert ranks.apart() > 0
    ranks.train(1)
    assert ranks.apart() == 0


def test_bytes_are_those_of_one_exchange_in_so_many_steps() -> None:
    dense, local = (Ranks(s, 4).train(20) for s in (DataParallel(Identity()), LocalSGD(Identity(), every=10)))
    there, here = dense.reference.meters[0], local.reference.meters[0]
    whole = sum(p.nbytes for p in model().parameters())
    assert here.payload_bytes == 2 * whole
    assert here.dense_bytes == there.dense_bytes == 20 * whole
    assert here.link_bytes == there.link_bytes / 10


@pytest.mark.parametrize("reducer", [ErrorFeedback(TopK(0.1)), ErrorFeedback(PowerSGD(1)), Quantize(8)], ids=repr)
def test_what_is_said_goes_through_any_reducer(reducer: object) -> None:
    plain = Ranks(LocalSGD(Identity(), every=5), 4, momentum).train(60)
    said = Ranks(LocalSGD(reducer, every=5, fuse_below=0), 4, momentum).train(60)  # type: ignore[arg-type]
    assert said.apart() == 0
    assert said.reference.meters[0].link_bytes < plain.reference.meters[0].link_bytes
    begun = loss_of(model(), 999, 0).item()
    assert loss_of(said.models[0], 999, 0).item() < begun - 0.2


# --- meetings that go on while replicas compute


@pytest.mark.parametrize("delay", [1, 2, 4])
def test_a_delay_keeps_the_mean_and_what_was_done_meanwhile(delay: int) -> None:
    """With a plain mean, a meeting moves nobody on average: so the mean goes its way as if nobody had met."""
    held = Ranks(LocalSGD(Identity(), every=4, delay=delay), 3, momentum).train(4)
    apart = Ranks(LocalSGD(Identity(), every=1000), 3, momentum).train(4)
    assert held.apart() == apart.apart() > 0, "what is on its way has moved nobody"
    ways = [dict(held.parameters(r)) for r in range(3)]
    held.train(delay - 1)
    before = [held.parameters(r) for r in range(3)]
    held.reference.land()
    for rank in range(3):
        for name, p in held.parameters(rank).items():
            mean = torch.stack([way[name] for way in ways]).mean(0)
            torch.testing.assert_close(p, before[rank][name] - ways[rank][name] + mean, rtol=1e-5, atol=1e-6)


def test_a_delay_lands_when_it_has_to() -> None:
    ranks = Ranks(LocalSGD(Identity(), every=4, delay=2), 3)
    counted = [ranks.train(1).reference.meters[0].link_bytes > 0 for _ in range(7)]
    assert counted == [False] * 5 + [True] * 2


def test_delayed_meetings_train_about_as_well() -> None:
    losses = {}
    for delay in (0, 3):
        ranks = Ranks(LocalSGD(Identity(), every=5, outer=NESTEROV, delay=delay), 4).train(100)
        mean = model()
        mean.load_state_dict(ranks.reference.consensus().means)
        losses[delay] = sum(loss_of(mean, 5000 + i, 0).item() for i in range(20)) / 20
    assert losses[3] < losses[0] + 0.1


# --- trouble


def test_parameters_that_are_not_finite_end_the_run_by_name() -> None:
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
def test_a_wrong_setting_is_shown(make: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        make()  # type: ignore[operator]


@pytest.mark.parametrize("codec", [TopK(0.01), RandomK(0.01), Chain(TopK(0.1), Quantize(4))], ids=repr)
def test_feedback_of_few_entries_under_outer_momentum_is_warned_of(codec: object) -> None:
    with pytest.warns(UserWarning, match="is known to train badly"):
        LocalSGD(ErrorFeedback(codec), outer=NESTEROV)  # type: ignore[arg-type]


def test_what_trains_well_is_not_warned_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LocalSGD(ErrorFeedback(TopK(0.01)))
        LocalSGD(TopK(0.01), outer=NESTEROV)
        LocalSGD(ErrorFeedback(Quantize(8)), outer=NESTEROV)
