from itertools import islice

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from thinwire.lab.runner.data_sharding import Batches, shards

LABELS = torch.arange(1003) % 10


@given(
    count=st.integers(1, 200),
    ranks=st.integers(1, 9),
    classes=st.integers(1, 12),
    how=st.sampled_from(["iid", "dirichlet:0.001", "dirichlet:0.1", "dirichlet:1", "dirichlet:1e6"]),
    seed=st.integers(0, 2**40),
)
def test_ranks_get_equally_many_examples_of_their_own(count, ranks, classes, how, seed):
    labels = torch.randint(classes, (count,), generator=torch.Generator().manual_seed(seed))
    if count < ranks:
        with pytest.raises(ValueError, match=f"{count} examples cannot be divided among {ranks} ranks"):
            shards(labels, count, ranks, how, seed)
        return
    dealt = shards(labels, count, ranks, how, seed)
    assert [len(shard) for shard in dealt] == [count // ranks] * ranks
    lockstep = torch.cat(dealt)
    assert lockstep.dtype == torch.int64
    assert len(lockstep.unique()) == len(lockstep)
    assert lockstep.min() >= 0
    assert lockstep.max() < count


@pytest.mark.parametrize("how", ["iid", "dirichlet:0.1"])
def test_a_seed_repeats_the_shares_and_another_changes_them(how):
    first, again, other = (torch.stack(shards(LABELS, 1003, 4, how, seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("how", ["iid", "dirichlet:0.1"])
def test_torchs_own_random_numbers_are_left_alone(how):
    before = torch.get_rng_state()
    shards(LABELS, 1003, 4, how, 1)
    assert torch.equal(torch.get_rng_state(), before)


def largest_share(how):
    """How much of a rank's examples are of its commonest class, as the mean over ranks and seeds."""
    labels = torch.arange(10_000) % 10
    shares = [
        labels[shard].bincount(minlength=10).max() / len(shard)
        for seed in range(10)
        for shard in shards(labels, len(labels), 4, how, seed)
    ]
    return float(torch.stack(shares).mean())


def test_the_smaller_the_number_the_more_ranks_differ():
    measured = [largest_share(how) for how in ("iid", "dirichlet:1000", "dirichlet:1", "dirichlet:0.1")]
    assert measured[0] < 0.13, "of ten classes, each a tenth"
    assert measured[1] < 0.15
    assert measured[1] < measured[2] < measured[3]
    assert measured[3] > 0.3


@pytest.mark.parametrize(
    "how",
    [
        *("foo", "", "IID", "iid:", "iid:0.1", "foo:0.1"),
        *("dirichlet", "dirichlet:", "dirichlet:0", "dirichlet:-1", "dirichlet:x"),
        *("dirichlet:nan", "dirichlet:inf", "dirichlet:0.1:2"),
    ],
)
def test_a_way_that_there_is_not_is_shown(how):
    with pytest.raises(ValueError, match="is not a way to deal") as error:
        shards(LABELS, 1003, 4, how, 1)
    assert repr(how) in str(error.value)
    assert "dirichlet:0.1" in str(error.value)


def test_examples_without_classes_cannot_be_skewed():
    with pytest.raises(ValueError, match=r"'dirichlet:0\.1' .* have none; use 'iid'"):
        shards(None, 100, 4, "dirichlet:0.1", 1)
    assert len(shards(None, 100, 4, "iid", 1)) == 4


def test_an_epoch_has_every_example_once_in_full_batches():
    shard = torch.arange(50, 150)
    epoch = list(islice(Batches(shard, 32, torch.Generator().manual_seed(1)), 3))
    seen = torch.cat(epoch)
    assert [len(batch) for batch in epoch] == [32, 32, 32]
    assert len(seen.unique()) == 96
    assert set(seen.tolist()) <= set(range(50, 150))


def test_epochs_differ_and_seeds_reproduce_them():
    def first(seed, number):
        return torch.cat(list(islice(Batches(torch.arange(100), 25, torch.Generator().manual_seed(seed)), number)))

    assert torch.equal(first(1, 8), first(1, 8))
    assert not torch.equal(first(1, 4), first(2, 4))
    assert not torch.equal(first(1, 4), first(1, 8)[100:]), "the second epoch is shuffled anew"


def test_a_shard_smaller_than_a_batch_is_refused_at_once():
    with pytest.raises(ValueError, match="a rank has 31 examples, which is fewer than its batch of 32"):
        Batches(torch.arange(31), 32, torch.Generator())
