import pytest
import torch

from thinwire.core.lazy import WeightedSum, copy_, is_finite, left_after, materialize, norm, pieces
from thinwire.kernels.low_rank_product import LowRankProduct
from thinwire.kernels.sparse_tensor import SparseTensor

from ..helpers import random, same_bits


def lazy() -> LowRankProduct:
    return LowRankProduct(random(2, 6, seed=1), random(2, 10, seed=2), torch.empty(6, 10))


@pytest.mark.parametrize("written", [True, False])
def test_what_is_written_out_and_what_is_not_are_used_alike(written: bool) -> None:
    what = lazy().dense() if written else lazy()
    expected = lazy().dense()
    assert same_bits(materialize(what), expected)
    target = torch.zeros(6, 10)
    copy_(target, what)
    assert same_bits(target, expected)
    total = random(6, 10, seed=3)
    left = left_after(total.clone(), what)
    assert same_bits(materialize(left), total - expected)


def test_what_is_cut_into_pieces_is_the_same_as_one() -> None:
    sizes, where = [3, 0, 16, 5], torch.tensor([0, 2, 3, 17, 18, 19, 23])
    sparse = SparseTensor(random(7), where, torch.empty(4, 6))
    for what in (sparse, sparse.dense(), LowRankProduct(random(2, 4, seed=1), random(2, 6, seed=2), torch.empty(4, 6))):
        cut = pieces(what, sizes)
        assert [piece.shape.numel() for piece in cut] == sizes
        assert same_bits(torch.cat([materialize(piece) for piece in cut]), materialize(what).flatten())


def test_a_tensor_is_itself() -> None:
    x = random(3)
    assert materialize(x) is x


def test_a_tensor_is_copied_into_any_shape_of_as_many_elements() -> None:
    target = torch.zeros(2, 3)
    copy_(target, torch.arange(6.0))
    assert target.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_what_is_left_takes_no_memory_of_its_own() -> None:
    for sent in (random(6, 10, seed=4), lazy()):
        total = random(6, 10)
        assert left_after(total, sent).total.data_ptr() == total.data_ptr()


def test_nothing_is_left_of_what_was_sent_as_it_is() -> None:
    # A transport may give a message's own memory back: subtracting it from itself would clear what was sent.
    total = random(6)
    before = total.clone()
    assert not materialize(left_after(total, total.view(6))).any()
    assert same_bits(total, before)


def test_a_norm_is_that_of_what_would_be_written_out() -> None:
    total = random(6, 10, seed=3)
    left = left_after(total.clone(), lazy())
    assert norm(left) == pytest.approx((total.double() - lazy().dense().double()).norm().item(), rel=1e-6)


def test_a_norm_is_not_off_where_a_sum_of_32_bits_would_be() -> None:
    many = torch.full((1 << 25,), 0.1)
    assert norm(many) == pytest.approx(0.1 * 2**12.5, rel=1e-6)


def sparse(seed: int) -> SparseTensor:
    return SparseTensor(random(3, seed=seed), torch.tensor([1, 7, 40 + seed]), torch.empty(6, 10))


def test_a_sum_of_sparse_tensors_is_written_where_it_belongs_by_one_or_by_many() -> None:
    terms, weights = [sparse(0), sparse(1), sparse(2)], [0.5, 0.25, 0.25]
    expected = torch.zeros(6, 10)
    for term, weight in zip(terms, weights, strict=True):
        expected += term.dense() * weight
    total = WeightedSum(terms, weights)
    for target in (torch.ones(6, 10), torch.ones(6, 10), torch.ones(10, 6).T, torch.ones(6, 10, dtype=torch.float64)):
        total.copy_to(target)
        assert torch.equal(target, expected.to(target.dtype))
    assert torch.equal(WeightedSum(terms, weights).dense(), expected)


def test_whether_a_sum_is_finite_is_known_from_its_terms() -> None:
    most = torch.finfo(torch.float32).max
    place, like = torch.tensor([3]), torch.empty(5)
    large = SparseTensor(torch.tensor([0.9 * most]), place, like)
    assert is_finite(WeightedSum([large, large], [0.5, 0.5]))
    assert not is_finite(WeightedSum([large, large], [1.0, 1.0])), "together they are too large"
    elsewhere = SparseTensor(torch.tensor([0.9 * most]), torch.tensor([4]), like)
    assert is_finite(WeightedSum([large, elsewhere], [1.0, 1.0])), "as large, but not in the same place"
    for wrong in (torch.nan, torch.inf):
        assert not is_finite(WeightedSum([large, SparseTensor(torch.tensor([wrong]), place, like)], [0.5, 0.5]))
