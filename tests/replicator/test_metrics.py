"""Tallies: mean and variance of values on one replica or on all, and their saved state."""

from collections.abc import Callable
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.attach import processes
from tests.helpers import random
from thinwire import Replicator, Tally
from thinwire.simulate import InProcessCluster

SIZES = (3, 0, 1, 8)  # number of values of each replica


def values(rank: int, *shape: int) -> Tensor:
    return random(SIZES[rank], *shape, seed=rank, dtype=torch.float64) + 10 * rank


def everything(ranks: int, *shape: int) -> Tensor:
    return torch.cat([values(rank, *shape) for rank in range(ranks)])


def check(tally: Tally, xs: Tensor) -> None:
    assert tally.count == len(xs)
    torch.testing.assert_close(tally.mean, xs.mean(0), rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(tally.variance, xs.var(0, correction=0), rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(tally.std, xs.std(0, correction=0), rtol=1e-13, atol=1e-13)


def one_by_one(tally: Tally, xs: Tensor) -> None:
    for x in xs:
        tally.add(x)


def in_batches(tally: Tally, xs: Tensor) -> None:
    for part in xs.split([2, 0, 9, 1]):
        tally.add(part.mean(0), len(part), part.var(0, correction=0) if len(part) else 0.0)


def all_at_once(tally: Tally, xs: Tensor) -> None:
    tally.add_each(xs[:5])
    tally.add_each(xs[5:5])
    tally.add_each(xs[5:])


@pytest.mark.parametrize("add", [one_by_one, in_batches, all_at_once])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)], ids=str)
def test_all_ways_of_adding_give_the_same_mean_and_variance(
    add: Callable[[Tally, Tensor], None], shape: tuple[int, ...]
) -> None:
    tally, xs = Tally(), everything(4, *shape)
    add(tally, xs)
    check(tally, xs)


def test_means_without_a_variance_count_as_equal_values() -> None:
    tally = Tally()
    tally.add(2.0, 3)
    tally.add(6, 1)
    check(tally, torch.tensor([2.0, 2.0, 2.0, 6.0], dtype=torch.float64))


def test_values_far_from_zero_keep_their_variance() -> None:
    tally, xs = Tally(), random(1000) + 1e6  # single precision
    one_by_one(tally, xs)
    torch.testing.assert_close(tally.variance, xs.double().var(correction=0), rtol=1e-9, atol=0)


def test_a_tally_copies_the_values_that_are_added() -> None:
    tally, x = Tally(), torch.ones(2, dtype=torch.float64, requires_grad=True)
    tally.add(x)
    x.data.zero_()
    tally.mean.zero_()
    assert tally.mean.tolist() == [1.0, 1.0]
    assert not tally.mean.requires_grad


def test_mean_and_variance_without_values_are_nan() -> None:
    tally = Tally()
    assert (tally.count, tally.mean.shape) == (0, ())
    assert all(x.isnan() for x in (tally.mean, tally.variance, tally.std))
    tally.add(torch.tensor([nan, nan]), 0)  # as for an empty batch
    assert tally.mean.isnan().tolist() == [True, True]
    tally.add(torch.tensor([1.0, 2.0]))
    assert tally.mean.tolist() == [1.0, 2.0]
    tally.reset()
    tally.add(5.0)
    assert tally.mean.item() == 5.0


@pytest.mark.parametrize("count", [-1, nan, inf])
def test_an_invalid_count_is_an_error(count: float) -> None:
    with pytest.raises(ValueError, match="0 examples or more"):
        Tally().add(1.0, count)


def test_values_of_another_shape_are_an_error() -> None:
    tally = Tally()
    tally.add(1.0)
    with pytest.raises(ValueError, match=r"the tally has values of shape \[\], not \[3\]"):
        tally.add(torch.ones(3))
    with pytest.raises(ValueError, match="first axis"):
        tally.add_each(torch.tensor(1.0))
    with pytest.raises(ValueError, match="up to 8 axes"):
        Tally().add(torch.ones([1] * 9))


def merged(ranks: int, shape: tuple[int, ...]) -> tuple[float, Tensor, Tensor]:
    """Count, mean and variance over all replicas, on one of them; a module-level function, for processes."""
    context, tally = Replicator().context, Tally()
    assert context.num_replicas == ranks
    if SIZES[context.rank]:  # replicas without values do not know the shape
        tally.add_each(values(context.rank, *shape))
    total = tally.merged(context)
    check(total, everything(ranks, *shape))
    assert tally.count == SIZES[context.rank], "merged() must not change the tally"
    return total.count, total.mean, total.variance


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)], ids=str)
def test_merged_is_the_tally_of_all_replicas_values(ranks: int, shape: tuple[int, ...]) -> None:
    found = InProcessCluster(ranks).run(lambda: merged(ranks, shape))
    assert all(same(one, found[0]) for one in found)


def test_processes_and_threads_give_the_same_bits() -> None:
    found, simulated = processes.run(merged, 2, (3,)), InProcessCluster(2).run(lambda: merged(2, (3,)))
    assert all(same(one, simulated[0]) for one in found)


def same(one: tuple[float, Tensor, Tensor], other: tuple[float, Tensor, Tensor]) -> bool:
    return one[0] == other[0] and torch.equal(one[1], other[1]) and torch.equal(one[2], other[2])


def test_merged_without_any_values_is_nan() -> None:
    for found in InProcessCluster(2).run(lambda: Tally().merged(Replicator().context)):
        assert found.count == 0
        assert found.mean.isnan()


def test_merging_different_shapes_is_an_error() -> None:
    def act() -> Tally:
        context, tally = Replicator().context, Tally()
        tally.add(torch.ones((2, 3) if context.rank else (3, 2)))
        return tally.merged(context)

    with pytest.raises(ValueError, match=r"different shapes: \[\[2, 3\], \[3, 2\]\]"):
        InProcessCluster(2).run(act)


def test_a_tally_resumes_from_a_state_of_plain_values(tmp_path: Path) -> None:
    for xs in (everything(4, 2)[:5], everything(4, 2)[:0]):
        tally, resumed = Tally(), Tally()
        for x in xs:
            tally.add(x)
        resumed.add(7.0)
        torch.save(tally.state_dict(), tmp_path / "state.pt")
        resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
        for one in (tally, resumed):
            one.add_each(everything(4, 2)[len(xs) :])
            check(one, everything(4, 2))


def test_a_replicator_saves_a_tally_in_checkpoints(tmp_path: Path) -> None:
    def act(steps: int) -> Tally:
        replicator, tally = Replicator(), Tally()
        replicator.keep(losses=tally)

        def step(context: Any, x: float) -> None:
            tally.add(x + context.rank)

        replicator.run(step, lambda context: [1.0, 2.0, 4.0, 8.0], steps, checkpoint=tmp_path)
        return tally.merged(replicator.context)

    InProcessCluster(2).run(lambda: act(3))
    for found in InProcessCluster(2).run(lambda: act(4)):
        assert found.count == 8
        assert found.mean.item() == pytest.approx(3.75 + 0.5)
