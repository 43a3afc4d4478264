"""One way within groups, another between them."""

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

MEETS = LocalSGD(Identity(), every=4)
FLAGS = 4 + 1  # bytes that tell which of up to 8 parameters got a gradient: a size and bits
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
def test_ranks_are_put_in_groups(grouping: object, groups: tuple[tuple[int, ...], ...]) -> None:
    assert grouping.of(6, ("a", "b", "a", "c", "c", "a")) == groups  # type: ignore[attr-defined]


def test_without_names_of_machines_there_is_one() -> None:
    assert ByHost().of(3) == ((0, 1, 2),)


def test_groups_that_cannot_be_made_are_refused() -> None:
    with pytest.raises(ValueError, match=r"6 ranks cannot be divided into GroupsOf\(4\): 2 would be left over"):
        GroupsOf(4).of(6)
    with pytest.raises(ValueError, match="takes 1 rank or more, not 0"):
        GroupsOf(0)


# --- what it equals


@pytest.mark.parametrize("outer", [LocalSGD(Identity(), every=4, outer=NESTEROV), DataParallel(Quantize(8))], ids=repr)
def test_a_rank_a_group_is_the_outer_part_alone(outer: object) -> None:
    nested = Ranks(Hierarchical(Identity(), outer, GroupsOf(1)), 4, momentum).train(9)  # type: ignore[arg-type]
    alone = Ranks(outer, 4, momentum).train(9)  # type: ignore[arg-type]
    for rank in range(4):
        close(nested.parameters(rank), alone.parameters(rank), rtol=0, atol=0)
    flags = 9 * 3 * FLAGS if isinstance(outer, DataParallel) else 0
    assert nested.reference.meters[0].link_bytes == alone.reference.meters[0].link_bytes + flags


@pytest.mark.parametrize(
    "outer", [MEETS, LocalSGD(Identity(), every=3, outer=OuterSGD(0.5)), Identity(), TopK(0.01)], ids=repr
)
def test_one_group_is_the_inner_part_alone(outer: object) -> None:
    """A group that is alone has nobody to speak with, whatever it would say."""
    nested = Ranks(Hierarchical(Identity(), outer, OneGroup()), 4, momentum).train(9)  # type: ignore[arg-type]
    alone = Ranks(DataParallel(Identity()), 4, momentum).train(9)
    for rank in range(4):
        close(nested.parameters(rank), alone.parameters(rank), rtol=0, atol=0)


def test_what_groups_have_agreed_on_is_where_their_ranks_have_met() -> None:
    """Else the next meeting within a group would undo some of it."""
    inner = LocalSGD(Identity(), every=2, outer=OuterSGD(0.5))
    crew = Ranks(Hierarchical(inner, LocalSGD(Identity(), every=4), GroupsOf(2)), 4).train(4)
    agreed = crew.parameters()
    assert crew.apart() == 0
    for _ in range(4):  # nobody moves
        crew.reference.before_update()
        crew.reference.after_update()
        for rank in range(4):
            close(crew.parameters(rank), agreed, rtol=0, atol=1e-6)


def test_averaged_within_and_between_is_averaged() -> None:
    nested = Ranks(Hierarchical(Identity(), Identity(), GroupsOf(2)), 6, momentum).train(9)
    dense = Ranks(DataParallel(Identity()), 6, momentum).train(9)
    assert nested.apart() == 0
    close(nested.parameters(), dense.parameters(), rtol=1e-5, atol=1e-6)


def test_groups_of_different_sizes_speak_with_each_other() -> None:
    """Each group counts as one, however many it has."""
    hosts = ("a", "a", "b", "a", "b")
    ranks = Ranks(Hierarchical(Identity(), LocalSGD(Identity(), every=3)), 5, momentum, hosts).train(2)
    first, second = ranks.parameters(0), ranks.parameters(2)
    for rank, host in enumerate(hosts):
        close(ranks.parameters(rank), first if host == "a" else second, rtol=0, atol=0)
    apart = Ranks(Hierarchical(Identity(), LocalSGD(Identity(), every=1000)), 5, momentum, hosts).train(3)
    ranks.train(1)
    assert ranks.apart() == 0
    mean = {name: (x + apart.parameters(2)[name]) / 2 for name, x in apart.parameters(0).items()}
    close(ranks.parameters(), mean, rtol=1e-5, atol=1e-6)


def test_meetings_may_be_nested() -> None:
    """Every 2 steps within groups, every 4 between them."""
    nested = Hierarchical(LocalSGD(Identity(), every=2), LocalSGD(Identity(), every=4), GroupsOf(2))
    ranks = Ranks(nested, 4, momentum)
    alike = []
    for _ in range(4):
        ranks.train(1)
        alike.append([ranks.parameters(r)["0.bias"] for r in range(4)])
    assert not torch.equal(alike[0][0], alike[0][1])
    assert torch.equal(alike[1][0], alike[1][1])
    assert not torch.equal(alike[1][0], alike[1][2])
    assert all(torch.equal(x, alike[3][0]) for x in alike[3])


# --- what it costs


def test_what_goes_between_groups_is_said_once() -> None:
    """By whichever rank of a group speaks for a parameter: all of them together say what one group would."""
    ranks = Ranks(Hierarchical(Identity(), Identity(), GroupsOf(3)), 6)
    ranks.train(1)
    meters = ranks.reference.meters
    groups = ((0, 1, 2), (3, 4, 5))
    to_other_group = sum(n for r in groups[0] for other, n in meters[r].sent.items() if other in groups[1])
    whole = sum(p.nbytes for p in model().parameters())
    assert to_other_group == whole + 3 * FLAGS
    spoken = [sum(n for about, n in meter.payload_by_unit.items() if about != INSIDE) for meter in meters]
    assert sum(spoken[:3]) == whole + 3 * FLAGS
    assert max(spoken) < 0.7 * whole


def test_only_what_is_said_between_groups_is_compressed() -> None:
    ranks = Ranks(Hierarchical(Identity(), ErrorFeedback(PowerSGD(1)), GroupsOf(2)), 4, momentum).train(3)
    meter = ranks.reference.meters[0]
    near, far = meter.sent[1], sum(n for other, n in meter.sent.items() if other > 1)
    assert far < near / 2
    assert ranks.apart() == 0


def test_layers_are_those_that_a_rank_speaks_for() -> None:
    ranks = Ranks(Hierarchical(Identity(), ErrorFeedback(Quantize(4)), GroupsOf(2)), 4).train(2)
    found = [ranks.reference.layers(rank) for rank in range(4)]
    names = [sorted(name for layer in layers.values() for name in layer.names) for layers in found]
    assert sorted(names[0] + names[1]) == sorted(ranks.parameters())
    assert names[0] == names[2]
    assert all(layer.payload_bytes > 0 and layer.residual is not None for layers in found for layer in layers.values())


# --- trouble


def test_a_parameter_that_no_group_used_has_no_gradient() -> None:
    """And one that a single rank used has, on all of them."""
    models = [model() for _ in range(4)]
    replicas = [replica_of(m, None, r, 4) for r, m in enumerate(models)]
    reference = ReferenceRun(Hierarchical(Identity(), Cast("float16"), GroupsOf(2)), replicas)
    models[3][0].weight.grad = torch.ones(9, 6)  # type: ignore[index,union-attr]
    reference.before_update()
    for m in models:
        torch.testing.assert_close(m[0].weight.grad, torch.full((9, 6), 0.25))  # type: ignore[index,union-attr]
        assert m[2].weight.grad is None  # type: ignore[index,union-attr]


def test_a_gradient_that_is_not_finite_is_heard_of_in_all_groups() -> None:
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
        (lambda: Hierarchical(LocalSGD(Identity(), every=3), MEETS), "an every that is a multiple of 3"),
        (lambda: Hierarchical(MEETS, Identity()), "must have synchronized before it exchanges"),
        (lambda: Hierarchical(Identity(), MEETS, 4), r"groups such as GroupsOf\(4\) or ByHost\(\), not 4"),
        (lambda: Hierarchical("dense", MEETS), "a codec or a reducer is needed here, not 'dense'"),
        (lambda: Hierarchical(Identity(), Identity(), GroupsOf(3)).check(4), "1 would be left over"),
    ],
)
def test_a_wrong_setting_is_shown(make: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        make()  # type: ignore[operator]
