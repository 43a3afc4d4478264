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
def test_shards_are_disjoint_and_of_equal_size(count, ranks, classes, how, seed):
    labels = torch.randint(classes, (count,), generator=torch.Generator().manual_seed(seed))
    if count < ranks:
        with pytest.raises(ValueError, match=f"{count} examples cannot be divided among {ranks} ranks"):
            shards(labels, count, ranks, how, seed)
        return
    divided = shards(labels, count, ranks, how, seed)
    assert [len(shard) for shard in divided] == [count // ranks] * ranks
    assigned = torch.cat(divided)
    assert assigned.dtype == torch.int64
    assert len(assigned.unique()) == len(assigned)
    assert assigned.min() >= 0
    assert assigned.max() < count


@pytest.mark.parametrize("how", ["iid", "dirichlet:0.1"])
def test_equal_seeds_give_equal_shards_and_other_seeds_others(how):
    first, again, other = (torch.stack(shards(LABELS, 1003, 4, how, seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("how", ["iid", "dirichlet:0.1"])
def test_torchs_random_state_is_unchanged(how):
    before = torch.get_rng_state()
    shards(LABELS, 1003, 4, how, 1)
    assert torch.equal(torch.get_rng_state(), before)


def largest_share(how):
    """The share of a rank's most frequent class, averaged over ranks and seeds."""
    labels = torch.arange(10_000) % 10
    shares = [
        labels[shard].bincount(minlength=10).max() / len(shard)
        for seed in range(10)
        for shard in shards(labels, len(labels), 4, how, seed)
    ]
    return float(torch.stack(shares).mean())


def test_ranks_differ_more_with_a_smaller_parameter():
    measured = [largest_share(how) for how in ("iid", "dirichlet:1000", "dirichlet:1", "dirichlet:0.1")]
    assert measured[0] < 0.13, "each of ten classes has about 10 %"
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
def test_an_invalid_text_is_an_error_that_quotes_it(how):
    with pytest.raises(ValueError, match="is not a way to divide") as error:
        shards(LABELS, 1003, 4, how, 1)
    assert repr(how) in str(error.value)
    assert "dirichlet:0.1" in str(error.value)


def test_skewing_examples_without_classes_is_an_error():
    with pytest.raises(ValueError, match=r"'dirichlet:0\.1' .* have none; use 'iid'"):
        shards(None, 100, 4, "dirichlet:0.1", 1)
    assert len(shards(None, 100, 4, "iid", 1)) == 4


def test_an_epoch_has_no_example_twice_and_only_full_batches():
    shard = torch.arange(50, 150)
    epoch = list(islice(Batches(shard, 32, torch.Generator().manual_seed(1)), 3))
    seen = torch.cat(epoch)
    assert [len(batch) for batch in epoch] == [32, 32, 32]
    assert len(seen.unique()) == 96
    assert set(seen.tolist()) <= set(range(50, 150))


def test_epochs_differ_and_equal_seeds_repeat_them():
    def first(seed, number):
        return torch.cat(list(islice(Batches(torch.arange(100), 25, torch.Generator().manual_seed(seed)), number)))

    assert torch.equal(first(1, 8), first(1, 8))
    assert not torch.equal(first(1, 4), first(2, 4))
    assert not torch.equal(first(1, 4), first(1, 8)[100:]), "the second epoch is shuffled again"


def test_a_shard_smaller_than_a_batch_is_an_error():
    with pytest.raises(ValueError, match="a rank has 31 examples, which is fewer than its batch of 32"):
        Batches(torch.arange(31), 32, torch.Generator())
