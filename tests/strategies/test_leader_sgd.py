"""Leader SGD and EASGD: the choice of leaders, pulls, groups, and the center variable."""

import pytest
import torch
from torch import nn
from torch.optim import SGD, Optimizer

from thinwire import EASGD, Cast, GroupsOf, Identity, LeaderSGD, LocalSGD, NonFiniteError, Quantize
from thinwire.extend import Replica

from ..helpers import same_bits
from ..reference_run import ReferenceRun
from .models import Ranks, close, loss_of, model


def crowd(ranks: int) -> list[Replica]:
    return [Replica.of({"w": torch.full((3,), float(rank))}, "dense", rank, ranks) for rank in range(ranks)]


def tensors(reference: ReferenceRun) -> list[float]:
    return [float(replica.parameters["w"][0]) for replica in reference.replicas]


def pulled(strategy: LeaderSGD, *losses: list[float]) -> list[float]:
    """The positions of replicas that start at 0, 1, 2, ... after steps with these losses and without updates."""
    reference = ReferenceRun(strategy, crowd(len(losses[0])))
    for step_losses in losses:
        reference.before_update(step_losses)
        reference.after_update()
    return tensors(reference)


# --- the choice of the leader


def test_all_are_pulled_towards_the_replica_with_the_lowest_loss() -> None:
    assert pulled(LeaderSGD(every=1, pull=0.25), [3.0, 2.0, 1.0, 4.0]) == [0.5, 1.25, 2.0, 2.75]


def test_the_first_of_equal_losses_leads() -> None:
    assert pulled(LeaderSGD(every=1, pull=1.0), [3.0, 2.0, 2.0]) == [1.0, 1.0, 1.0]


def test_the_window_averages_only_the_losses_so_far() -> None:
    """Before it is full, the window does not count zeros, so that a single low loss leads at once."""
    assert pulled(LeaderSGD(every=1, pull=1.0, window=100), [5.0, 1.0, 5.0]) == [1.0] * 3
    # Means over the last two losses: 4, 3.5 and 5; over all three, the first would lead.
    losses = [[0.0, 9.0, 9.0], [4.0, 3.0, 5.0], [4.0, 4.0, 5.0]]
    assert pulled(LeaderSGD(every=3, pull=1.0, window=2), *losses) == [1.0] * 3
    assert pulled(LeaderSGD(every=3, pull=1.0, window=3), *losses) == [0.0] * 3


def test_a_replica_with_a_non_finite_loss_never_leads() -> None:
    assert pulled(LeaderSGD(every=1, pull=1.0), [float("nan"), 2.0, -float("inf")]) == [1.0] * 3


def test_with_a_pull_of_1_all_replicas_equal_one_leader() -> None:
    """They are bit-identical to one replica of a local run, not an average."""
    ranks = Ranks(LeaderSGD(every=5, pull=1.0), 4).train(4)
    before_pull = [ranks.parameters(rank) for rank in range(4)]
    ranks.train(1)
    alone = Ranks(LocalSGD(Identity(), every=1000), 4).train(5)
    found = ranks.parameters()
    assert any(all(same_bits(found[n], x) for n, x in alone.parameters(r).items()) for r in range(4))
    assert ranks.max_difference() == 0
    assert not any(all(same_bits(found[n], x) for n, x in before.items()) for before in before_pull)


# --- groups


def test_groups_are_pulled_to_their_leader_and_to_the_overall_leader() -> None:
    strategy = LeaderSGD(every=2, pull=0.5, groups=GroupsOf(2), local_every=1, local_pull=0.5)
    losses = [1.0, 2.0, 4.0, 3.0]
    assert pulled(strategy, losses) == [0.0, 0.5, 2.5, 3.0]
    # In the second step both pulls use the leaders' parameters from before the pulls: 0 and 3.
    assert pulled(strategy, losses, losses) == [0.0, 0.125, 1.375, 1.5]


def test_without_groups_only_the_overall_leader_pulls() -> None:
    assert pulled(LeaderSGD(every=2, pull=0.5, local_every=1), [1.0, 2.0]) == [0.0, 1.0]


def test_only_the_leader_sends_parameters_the_others_send_a_loss() -> None:
    reference = ReferenceRun(LeaderSGD(every=1), crowd(4))
    reference.before_update([2.0, 1.0, 3.0, 4.0])
    reference.after_update()
    losses = 4 * 8
    assert [meter.payload_bytes for meter in reference.meters] == [losses, losses + 12, losses, losses]
    assert reference.meters[1].sent == {0: 12 + 16, 2: 12 + 16, 3: 12 + 16}


# --- stale pulls


def test_a_stale_pull_is_off_by_default_and_else_spread_over_the_steps() -> None:
    losses = [1.0, 2.0]
    assert pulled(LeaderSGD(every=2, pull=0.5), losses, losses, losses) == [0.0, 0.5]
    # Before the first pull no leader is known; after it, each step pulls a quarter of the way to that leader.
    assert pulled(LeaderSGD(every=2, pull=0.5, stale_pull=0.5), losses) == [0.0, 1.0]
    assert pulled(LeaderSGD(every=2, pull=0.5, stale_pull=0.5), *[losses] * 3) == [0.0, 0.375]


# --- training


@pytest.mark.parametrize(
    "strategy",
    [LeaderSGD(every=4), LeaderSGD(Cast("float16"), every=4, groups=GroupsOf(2), local_every=2), EASGD(every=4)],
)
def test_it_trains_and_bounds_the_distance_between_replicas(strategy: object) -> None:
    def momentum(m: nn.Module) -> Optimizer:
        return SGD(m.parameters(), lr=0.1, momentum=0.9)

    ranks = Ranks(strategy, 4, momentum).train(80)  # type: ignore[arg-type]
    local = Ranks(LocalSGD(Identity(), every=1000), 4, momentum).train(80)
    assert 0 < ranks.max_difference() < local.max_difference()
    initial = sum(loss_of(model(), 5000 + i, 0).item() for i in range(10)) / 10
    for m in ranks.models:
        assert sum(loss_of(m, 5000 + i, 0).item() for i in range(10)) / 10 < initial - 0.5


def test_non_finite_parameters_of_the_leader_raise_an_error_that_names_them() -> None:
    reference = ReferenceRun(LeaderSGD(every=1), crowd(3))
    reference.replicas[1].parameters["w"][2] = torch.nan
    reference.before_update([2.0, 1.0, 3.0])
    with pytest.raises(NonFiniteError, match="the parameters of w"):
        reference.after_update()


def test_missing_losses_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"LeaderSGD\(\) needs the losses"):
        ReferenceRun(LeaderSGD(), crowd(2)).before_update()


# --- EASGD


def test_replicas_and_center_follow_the_easgd_update() -> None:
    """x -= rate / p * (x - center), center += rate * (mean of x - center)."""
    replicas = crowd(4)
    for replica in replicas:
        replica.parameters["w"].zero_()
    reference = ReferenceRun(EASGD(every=2, rate=0.4), replicas)
    xs, center = torch.zeros(4, dtype=torch.float64), 0.0
    for step in range(6):
        reference.before_update()
        for rank, replica in enumerate(replicas):
            replica.parameters["w"].add_(rank + 1.0)
        reference.after_update()
        xs += torch.arange(1.0, 5.0)
        if step % 2:
            xs, center = xs - 0.1 * (xs - center), center + 0.4 * float(xs.mean() - center)
        assert tensors(reference) == pytest.approx(xs.tolist(), rel=1e-5)
    strategy = reference.strategy
    assert isinstance(strategy, EASGD)
    for rank in range(4):
        found = strategy.center(reference.replicas[rank], reference.states[rank])
        torch.testing.assert_close(found["w"], torch.full((3,), center))


def test_easgd_can_compress_the_differences_to_the_center() -> None:
    plain, compressed = (Ranks(EASGD(reducer, every=4), 4).train(40) for reducer in (Identity(), Quantize(8)))
    assert compressed.reference.meters[0].link_bytes < 0.6 * plain.reference.meters[0].link_bytes
    close(compressed.parameters(), plain.parameters(), rtol=0.05, atol=0.02)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: LeaderSGD(every=0), "takes every of 1 or more, not 0"),
        (lambda: LeaderSGD(window=0), "takes window of 1 or more, not 0"),
        (lambda: LeaderSGD(pull=1.5), "a pull above 0 and up to 1, not 1.5"),
        (lambda: LeaderSGD(local_pull=0), "a local_pull above 0 and up to 1, not 0"),
        (lambda: LeaderSGD(stale_pull=2), "a stale_pull from 0 to 1, not 2"),
        (lambda: LeaderSGD(groups=2), r"groups such as GroupsOf\(4\) or ByHost\(\), not 2"),
        (lambda: LeaderSGD("dense"), "takes a codec, not 'dense'"),
        (lambda: LeaderSGD(groups=GroupsOf(3)).check(4), "1 would be left over"),
        (lambda: EASGD(every=0), "pulls every 1 step or more, not 0"),
        (lambda: EASGD(rate=0), "a rate above 0 and up to 1, not 0"),
    ],
)
def test_an_invalid_setting_is_an_error(make: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        make()  # type: ignore[operator]
