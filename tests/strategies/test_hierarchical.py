"""Hierarchical methods: one method within groups of ranks, another between groups."""

import pytest
import torch
from torch import nn
from torch.optim import SGD, Optimizer

from thinwire import (
    ByHost,
    Cast,
    DataParallel,
    ErrorFeedback,
    Gossip,
    GroupsOf,
    Hierarchical,
    Identity,
    LocalSGD,
    NonFiniteError,
    OneGroup,
    OuterSGD,
    PowerSGD,
    Quantize,
    TopK,
)
from thinwire.simulate import replica_of
from thinwire.strategies.hierarchical import INSIDE

from ..reference_run import ReferenceRun
from .models import Ranks, close, model

EVERY_FOUR = LocalSGD(Identity(), every=4)
FLAGS = 4 + 1  # bytes: a size, and a bit for each of up to 8 parameters that got a gradient
NESTEROV = OuterSGD(0.7, momentum=0.9, nesterov=True)


def momentum(m: nn.Module) -> Optimizer:
    return SGD(m.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)


# --- groups


@pytest.mark.parametrize(
    ("grouping", "groups"),
    [
        (OneGroup(), ((0, 1, 2, 3, 4, 5),)),
        (GroupsOf(2), ((0, 1), (2, 3), (4, 5))),
        (GroupsOf(6), ((0, 1, 2, 3, 4, 5),)),
        (ByHost(), ((0, 2, 5), (1,), (3, 4))),
    ],
    ids=repr,
)
def test_groupings_divide_the_ranks(grouping: object, groups: tuple[tuple[int, ...], ...]) -> None:
    assert grouping.of(6, ("a", "b", "a", "c", "c", "a")) == groups  # type: ignore[attr-defined]


def test_by_host_without_host_names_is_one_group() -> None:
    assert ByHost().of(3) == ((0, 1, 2),)


def test_groups_that_do_not_divide_evenly_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"6 ranks cannot be divided into GroupsOf\(4\): 2 would be left over"):
        GroupsOf(4).of(6)
    with pytest.raises(ValueError, match="takes 1 rank or more, not 0"):
        GroupsOf(0)


# --- equivalence to other methods


@pytest.mark.parametrize("outer", [LocalSGD(Identity(), every=4, outer=NESTEROV), DataParallel(Quantize(8))], ids=repr)
def test_groups_of_one_rank_equal_the_outer_method(outer: object) -> None:
    hierarchical = Ranks(Hierarchical(Identity(), outer, GroupsOf(1)), 4, momentum).train(9)  # type: ignore[arg-type]
    alone = Ranks(outer, 4, momentum).train(9)  # type: ignore[arg-type]
    for rank in range(4):
        close(hierarchical.parameters(rank), alone.parameters(rank), rtol=0, atol=0)
    flags = 9 * 3 * FLAGS if isinstance(outer, DataParallel) else 0
    assert hierarchical.reference.meters[0].link_bytes == alone.reference.meters[0].link_bytes + flags


@pytest.mark.parametrize(
    "outer", [EVERY_FOUR, LocalSGD(Identity(), every=3, outer=OuterSGD(0.5)), Identity(), TopK(0.01)], ids=repr
)
def test_a_single_group_equals_the_inner_method(outer: object) -> None:
    """A single group has no other group to exchange with, whatever the outer method."""
    hierarchical = Ranks(Hierarchical(Identity(), outer, OneGroup()), 4, momentum).train(9)  # type: ignore[arg-type]
    alone = Ranks(DataParallel(Identity()), 4, momentum).train(9)
    for rank in range(4):
        close(hierarchical.parameters(rank), alone.parameters(rank), rtol=0, atol=0)


def test_an_outer_synchronization_counts_as_an_inner_one() -> None:
    """Otherwise the next synchronization within a group would undo part of it."""
    inner = LocalSGD(Identity(), every=2, outer=OuterSGD(0.5))
    crew = Ranks(Hierarchical(inner, LocalSGD(Identity(), every=4), GroupsOf(2)), 4).train(4)
    synchronized = crew.parameters()
    assert crew.max_difference() == 0
    for _ in range(4):  # steps without updates
        crew.reference.before_update()
        crew.reference.after_update()
        for rank in range(4):
            close(crew.parameters(rank), synchronized, rtol=0, atol=1e-6)


def test_averaging_within_and_between_groups_equals_data_parallel() -> None:
    hierarchical = Ranks(Hierarchical(Identity(), Identity(), GroupsOf(2)), 6, momentum).train(9)
    dense = Ranks(DataParallel(Identity()), 6, momentum).train(9)
    assert hierarchical.max_difference() == 0
    close(hierarchical.parameters(), dense.parameters(), rtol=1e-5, atol=1e-6)


def test_groups_of_different_sizes_have_equal_weight() -> None:
    """The mean between groups does not depend on their sizes."""
    hosts = ("a", "a", "b", "a", "b")
    ranks = Ranks(Hierarchical(Identity(), LocalSGD(Identity(), every=3)), 5, momentum, hosts).train(2)
    first, second = ranks.parameters(0), ranks.parameters(2)
    for rank, host in enumerate(hosts):
        close(ranks.parameters(rank), first if host == "a" else second, rtol=0, atol=0)
    local = Ranks(Hierarchical(Identity(), LocalSGD(Identity(), every=1000)), 5, momentum, hosts).train(3)
    ranks.train(1)
    assert ranks.max_difference() == 0
    mean = {name: (x + local.parameters(2)[name]) / 2 for name, x in local.parameters(0).items()}
    close(ranks.parameters(), mean, rtol=1e-5, atol=1e-6)


def test_local_sgd_within_and_between_groups() -> None:
    """Synchronizes every 2 steps within groups, every 4 between groups."""
    hierarchical = Hierarchical(LocalSGD(Identity(), every=2), LocalSGD(Identity(), every=4), GroupsOf(2))
    ranks = Ranks(hierarchical, 4, momentum)
    biases = []
    for _ in range(4):
        ranks.train(1)
        biases.append([ranks.parameters(r)["0.bias"] for r in range(4)])
    assert not torch.equal(biases[0][0], biases[0][1])
    assert torch.equal(biases[1][0], biases[1][1])
    assert not torch.equal(biases[1][0], biases[1][2])
    assert all(torch.equal(x, biases[3][0]) for x in biases[3])


# --- bytes


def test_parameters_are_sent_between_groups_once() -> None:
    """Each parameter is sent by one rank of the group, so the group sends one model in total."""
    ranks = Ranks(Hierarchical(Identity(), Identity(), GroupsOf(3)), 6)
    ranks.train(1)
    meters = ranks.reference.meters
    groups = ((0, 1, 2), (3, 4, 5))
    to_other_group = sum(n for r in groups[0] for other, n in meters[r].sent.items() if other in groups[1])
    model_bytes = sum(p.nbytes for p in model().parameters())
    assert to_other_group == model_bytes + 3 * FLAGS
    payloads = [sum(n for unit, n in meter.payload_by_unit.items() if unit != INSIDE) for meter in meters]
    assert sum(payloads[:3]) == model_bytes + 3 * FLAGS
    assert max(payloads) < 0.7 * model_bytes


def test_only_messages_between_groups_are_compressed() -> None:
    ranks = Ranks(Hierarchical(Identity(), ErrorFeedback(PowerSGD(1)), GroupsOf(2)), 4, momentum).train(3)
    meter = ranks.reference.meters[0]
    within, between = meter.sent[1], sum(n for other, n in meter.sent.items() if other > 1)
    assert between < within / 2
    assert ranks.max_difference() == 0


def test_layers_lists_the_parameters_that_a_rank_sends() -> None:
    ranks = Ranks(Hierarchical(Identity(), ErrorFeedback(Quantize(4)), GroupsOf(2)), 4).train(2)
    found = [ranks.reference.layers(rank) for rank in range(4)]
    names = [sorted(name for layer in layers.values() for name in layer.names) for layers in found]
    assert sorted(names[0] + names[1]) == sorted(ranks.parameters())
    assert names[0] == names[2]
    assert all(layer.payload_bytes > 0 and layer.residual is not None for layers in found for layer in layers.values())


# --- unused parameters and errors


def test_a_parameter_that_no_group_used_has_no_gradient() -> None:
    """A parameter that a single rank used has a gradient on all ranks."""
    models = [model() for _ in range(4)]
    replicas = [replica_of(m, None, r, 4) for r, m in enumerate(models)]
    reference = ReferenceRun(Hierarchical(Identity(), Cast("float16"), GroupsOf(2)), replicas)
    models[3][0].weight.grad = torch.ones(9, 6)  # type: ignore[index,union-attr]
    reference.before_update()
    for m in models:
        torch.testing.assert_close(m[0].weight.grad, torch.full((9, 6), 0.25))  # type: ignore[index,union-attr]
        assert m[2].weight.grad is None  # type: ignore[index,union-attr]


def test_a_non_finite_gradient_reaches_all_groups() -> None:
    models = [model() for _ in range(4)]
    reference = ReferenceRun(
        Hierarchical(Identity(), Identity(), GroupsOf(2)), [replica_of(m, None, r, 4) for r, m in enumerate(models)]
    )
    for m in models:
        for p in m.parameters():
            p.grad = torch.ones_like(p)
    models[2][2].weight.grad[0, 0] = torch.nan  # type: ignore[index,union-attr]
    with pytest.raises(NonFiniteError, match=r"the gradient of .*2\.weight"):
        reference.before_update()
    assert all(m[2].weight.grad.isnan().any() for m in models)  # type: ignore[index,union-attr]


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Hierarchical(Gossip(Identity()), Identity()), "averages gradients or takes LocalSGD within groups"),
        (lambda: Hierarchical(Identity(), Gossip(Identity())), "averages gradients or takes LocalSGD between groups"),
        (lambda: Hierarchical(Identity(), LocalSGD(Identity(), delay=2)), "does not support overlap"),
        (lambda: Hierarchical(LocalSGD(Identity(), every=3), EVERY_FOUR), "an every that is a multiple of 3"),
        (lambda: Hierarchical(EVERY_FOUR, Identity()), "must have synchronized before it exchanges"),
        (lambda: Hierarchical(Identity(), EVERY_FOUR, 4), r"groups such as GroupsOf\(4\) or ByHost\(\), not 4"),
        (lambda: Hierarchical("dense", EVERY_FOUR), "a codec or a reducer is needed here, not 'dense'"),
        (lambda: Hierarchical(Identity(), Identity(), GroupsOf(3)).check(4), "1 would be left over"),
    ],
)
def test_an_invalid_setting_is_an_error(make: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        make()  # type: ignore[operator]
