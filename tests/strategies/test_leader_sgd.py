"""Leader SGD and EASGD: who leads, and what becomes of the others."""

import pytest
import torch
from torch import nn
from torch.optim import SGD, Optimizer

from thinwire import EASGD, Cast, GroupsOf, Identity, LeaderSGD, LocalSGD, NonFiniteError, Quantize
from thinwire.extend import Replica

from ..helpers import same_bits
from ..rehearsal import Rehearsal
from .models import Ranks, close, loss_of, model


def crowd(ranks: int) -> list[Replica]:
    return [Replica.of({"w": torch.full((3,), float(rank))}, "dense", rank, ranks) for rank in range(ranks)]


def tensors(between: Rehearsal) -> list[float]:
    return [float(replica.parameters["w"][0]) for replica in between.replicas]


def led(strategy: LeaderSGD, *losses: list[float]) -> list[float]:
    """Where replicas at 0, 1, 2, ... are after steps with these losses, in which they do not move by themselves."""
    between = Rehearsal(strategy, crowd(len(losses[0])))
    for of_step in losses:
        between.before_update(of_step)
        between.after_update()
    return tensors(between)


# --- who leads


def test_all_are_pulled_towards_the_replica_with_the_lowest_loss() -> None:
    assert led(LeaderSGD(every=1, pull=0.25), [3.0, 2.0, 1.0, 4.0]) == [0.5, 1.25, 2.0, 2.75]


def test_of_equal_losses_the_first_leads() -> None:
    assert led(LeaderSGD(every=1, pull=1.0), [3.0, 2.0, 2.0]) == [1.0, 1.0, 1.0]


def test_the_window_is_of_as_many_losses_as_there_are() -> None:
    """Not of zeros before the first ones: a single low loss would not lead otherwise until the window is full."""
    assert led(LeaderSGD(every=1, pull=1.0, window=100), [5.0, 1.0, 5.0]) == [1.0] * 3
    # Means over the last two losses: 4, 3.5 and 5; over all three, the first would lead.
    losses = [[0.0, 9.0, 9.0], [4.0, 3.0, 5.0], [4.0, 4.0, 5.0]]
    assert led(LeaderSGD(every=3, pull=1.0, window=2), *losses) == [1.0] * 3
    assert led(LeaderSGD(every=3, pull=1.0, window=3), *losses) == [0.0] * 3


def test_who_has_lost_its_way_leads_nobody() -> None:
    assert led(LeaderSGD(every=1, pull=1.0), [float("nan"), 2.0, -float("inf")]) == [1.0] * 3


def test_leaders_are_copies_and_never_averages() -> None:
    """With a pull of 1, all are the leader to the bit."""
    ranks = Ranks(LeaderSGD(every=5, pull=1.0), 4).train(4)
    apart = [ranks.parameters(rank) for rank in range(4)]
    ranks.train(1)
    alone = Ranks(LocalSGD(Identity(), every=1000), 4).train(5)
    found = ranks.parameters()
    assert any(all(same_bits(found[n], x) for n, x in alone.parameters(r).items()) for r in range(4))
    assert ranks.apart() == 0
    assert not any(all(same_bits(found[n], x) for n, x in before.items()) for before in apart)


# --- groups


def test_each_group_has_a_leader_of_its_own_and_all_have_one() -> None:
    strategy = LeaderSGD(every=2, pull=0.5, groups=GroupsOf(2), local_every=1, local_pull=0.5)
    losses = [1.0, 2.0, 4.0, 3.0]
    assert led(strategy, losses) == [0.0, 0.5, 2.5, 3.0]
    # Both leaders of the second step are as they were before anyone was pulled: at 0 and 3.
    assert led(strategy, losses, losses) == [0.0, 0.125, 1.375, 1.5]


def test_without_groups_only_the_leader_of_all_pulls() -> None:
    assert led(LeaderSGD(every=2, pull=0.5, local_every=1), [1.0, 2.0]) == [0.0, 1.0]


def test_only_the_leader_speaks_but_for_a_loss() -> None:
    between = Rehearsal(LeaderSGD(every=1), crowd(4))
    between.before_update([2.0, 1.0, 3.0, 4.0])
    between.after_update()
    losses = 4 * 8
    assert [meter.payload_bytes for meter in between.meters] == [losses, losses + 12, losses, losses]
    assert between.meters[1].sent == {0: 12 + 16, 2: 12 + 16, 3: 12 + 16}


# --- pulls in between


def test_a_stale_pull_is_off_by_default_and_spread_over_the_steps_when_asked_for() -> None:
    losses = [1.0, 2.0]
    assert led(LeaderSGD(every=2, pull=0.5), losses, losses, losses) == [0.0, 0.5]
    # Before the first pull there is nobody to be pulled to; after it, a quarter of the way a step to who led then.
    assert led(LeaderSGD(every=2, pull=0.5, stale_pull=0.5), losses) == [0.0, 1.0]
    assert led(LeaderSGD(every=2, pull=0.5, stale_pull=0.5), *[losses] * 3) == [0.0, 0.375]


# --- training


@pytest.mark.parametrize(
    "strategy",
    [LeaderSGD(every=4), LeaderSGD(Cast("float16"), every=4, groups=GroupsOf(2), local_every=2), EASGD(every=4)],
)
def test_it_trains_and_keeps_replicas_together(strategy: object) -> None:
    def momentum(m: nn.Module) -> Optimizer:
        return SGD(m.parameters(), lr=0.1, momentum=0.9)

    ranks = Ranks(strategy, 4, momentum).train(80)  # type: ignore[arg-type]
    free = Ranks(LocalSGD(Identity(), every=1000), 4, momentum).train(80)
    assert 0 < ranks.apart() < free.apart()
    begun = sum(loss_of(model(), 5000 + i, 0).item() for i in range(10)) / 10
    for m in ranks.models:
        assert sum(loss_of(m, 5000 + i, 0).item() for i in range(10)) / 10 < begun - 0.5


def test_parameters_of_a_leader_that_are_not_finite_end_the_run_by_name() -> None:
    between = Rehearsal(LeaderSGD(every=1), crowd(3))
    between.replicas[1].parameters["w"][2] = torch.nan
    between.before_update([2.0, 1.0, 3.0])
    with pytest.raises(NonFiniteError, match="the parameters of w"):
        between.after_update()


def test_losses_have_to_be_told() -> None:
    with pytest.raises(ValueError, match=r"LeaderSGD\(\) needs to know the losses"):
        Rehearsal(LeaderSGD(), crowd(2)).before_update()


# --- EASGD


def test_replicas_and_centre_are_drawn_together() -> None:
    """x -= rate / p * (x - center), center += rate * (mean of x - center)."""
    replicas = crowd(4)
    for replica in replicas:
        replica.parameters["w"].zero_()
    between = Rehearsal(EASGD(every=2, rate=0.4), replicas)
    xs, center = torch.zeros(4, dtype=torch.float64), 0.0
    for step in range(6):
        between.before_update()
        for rank, replica in enumerate(replicas):
            replica.parameters["w"].add_(rank + 1.0)
        between.after_update()
        xs += torch.arange(1.0, 5.0)
        if step % 2:
            xs, center = xs - 0.1 * (xs - center), center + 0.4 * float(xs.mean() - center)
        assert tensors(between) == pytest.approx(xs.tolist(), rel=1e-5)
    strategy = between.strategy
    assert isinstance(strategy, EASGD)
    for rank in range(4):
        found = strategy.center(between.replicas[rank], between.states[rank])
        torch.testing.assert_close(found["w"], torch.full((3,), center))


def test_what_is_said_of_the_distance_may_be_compressed() -> None:
    plain, few = (Ranks(EASGD(reducer, every=4), 4).train(40) for reducer in (Identity(), Quantize(8)))
    assert few.between.meters[0].link_bytes < 0.6 * plain.between.meters[0].link_bytes
    close(few.parameters(), plain.parameters(), rtol=0.05, atol=0.02)


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
def test_a_wrong_setting_is_shown(make: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        make()  # type: ignore[operator]
