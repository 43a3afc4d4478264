import pytest
import torch

from thinwire.core.lazy import WeightedSum, copy_, is_finite, materialize, norm, pieces, residual_after
from thinwire.kernels.low_rank_product import LowRankProduct
from thinwire.kernels.sparse_tensor import SparseTensor

from ..helpers import random, same_bits


def lazy() -> LowRankProduct:
    return LowRankProduct(random(2, 6, seed=1), random(2, 10, seed=2), torch.empty(6, 10))


@pytest.mark.parametrize("materialized", [True, False])
def test_lazy_and_materialized_tensors_give_the_same_results(materialized: bool) -> None:
    sent = lazy().dense() if materialized else lazy()
    expected = lazy().dense()
    assert same_bits(materialize(sent), expected)
    target = torch.zeros(6, 10)
    copy_(target, sent)
    assert same_bits(target, expected)
    total = random(6, 10, seed=3)
    residual = residual_after(total.clone(), sent)
    assert same_bits(materialize(residual), total - expected)


def test_the_pieces_of_a_lazy_tensor_concatenate_to_it() -> None:
    sizes, indices = [3, 0, 16, 5], torch.tensor([0, 2, 3, 17, 18, 19, 23])
    sparse = SparseTensor(random(7), indices, torch.empty(4, 6))
    for x in (sparse, sparse.dense(), LowRankProduct(random(2, 4, seed=1), random(2, 6, seed=2), torch.empty(4, 6))):
        cut = pieces(x, sizes)
        assert [piece.shape.numel() for piece in cut] == sizes
        assert same_bits(torch.cat([materialize(piece) for piece in cut]), materialize(x).flatten())


def test_materializing_a_tensor_returns_it() -> None:
    x = random(3)
    assert materialize(x) is x


def test_a_tensor_is_copied_into_another_shape_of_equal_size() -> None:
    target = torch.zeros(2, 3)
    copy_(target, torch.arange(6.0))
    assert target.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_the_residual_reuses_the_memory_of_the_total() -> None:
    for sent in (random(6, 10, seed=4), lazy()):
        total = random(6, 10)
        assert residual_after(total, sent).total.data_ptr() == total.data_ptr()


def test_the_residual_of_an_uncompressed_message_is_zero() -> None:
    # `sent` may share memory with the total: subtracting in place would clear it.
    total = random(6)
    before = total.clone()
    assert not materialize(residual_after(total, total.view(6))).any()
    assert same_bits(total, before)


def test_the_norm_of_a_lazy_tensor_is_that_of_the_materialized_one() -> None:
    total = random(6, 10, seed=3)
    residual = residual_after(total.clone(), lazy())
    assert norm(residual) == pytest.approx((total.double() - lazy().dense().double()).norm().item(), rel=1e-6)


def test_the_norm_of_many_entries_is_accurate() -> None:
    many = torch.full((1 << 25,), 0.1)
    assert norm(many) == pytest.approx(0.1 * 2**12.5, rel=1e-6)


def sparse(seed: int) -> SparseTensor:
    return SparseTensor(random(3, seed=seed), torch.tensor([1, 7, 40 + seed]), torch.empty(6, 10))


def test_a_weighted_sum_of_sparse_tensors_is_copied_into_any_layout() -> None:
    terms, weights = [sparse(0), sparse(1), sparse(2)], [0.5, 0.25, 0.25]
    expected = torch.zeros(6, 10)
    for term, weight in zip(terms, weights, strict=True):
        expected += term.dense() * weight
    total = WeightedSum(terms, weights)
    for target in (torch.ones(6, 10), torch.ones(6, 10), torch.ones(10, 6).T, torch.ones(6, 10, dtype=torch.float64)):
        total.copy_to(target)
        assert torch.equal(target, expected.to(target.dtype))
    assert torch.equal(WeightedSum(terms, weights).dense(), expected)


def test_is_finite_of_a_weighted_sum() -> None:
    largest = torch.finfo(torch.float32).max
    index, like = torch.tensor([3]), torch.empty(5)
    large = SparseTensor(torch.tensor([0.9 * largest]), index, like)
    assert is_finite(WeightedSum([large, large], [0.5, 0.5]))
    assert not is_finite(WeightedSum([large, large], [1.0, 1.0])), "their sum overflows"
    elsewhere = SparseTensor(torch.tensor([0.9 * largest]), torch.tensor([4]), like)
    assert is_finite(WeightedSum([large, elsewhere], [1.0, 1.0])), "as large, but at different indices"
    for wrong in (torch.nan, torch.inf):
        assert not is_finite(WeightedSum([large, SparseTensor(torch.tensor([wrong]), index, like)], [0.5, 0.5]))
