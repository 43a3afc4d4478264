from itertools import islice

import torch

from thinwire.lab.training import BATCH, batches


def test_no_image_is_on_two_ranks_or_twice_in_an_epoch():
    count, ranks = 1437, 4
    per_epoch = count // (ranks * BATCH)
    seen = torch.cat([batch for r in range(ranks) for batch in islice(batches(count, r, ranks, seed=3), per_epoch)])
    assert len(seen) == ranks * per_epoch * BATCH
    assert len(seen.unique()) == len(seen)


def test_epochs_differ_and_seeds_reproduce_them():
    def first(seed, number):
        return torch.cat(list(islice(batches(1437, 0, 4, seed), number)))

    assert torch.equal(first(1, 22), first(1, 22))
    assert not torch.equal(first(1, 11), first(2, 11))
    assert not torch.equal(first(1, 11), first(1, 22)[-11 * BATCH :]), "the second epoch is shuffled anew"
