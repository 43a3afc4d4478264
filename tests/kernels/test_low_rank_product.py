import pytest
import torch

from thinwire.kernels import low_rank_product as kernels
from thinwire.kernels.low_rank_product import FEW, LowRankProduct, dots, renewed, sums

from ..helpers import random, same_bits

RANKS = (1, 2, 3, 4, 5, 7, FEW, FEW + 1)
TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
Patch = pytest.MonkeyPatch
every_rank = pytest.mark.parametrize("rank", RANKS)
every_height = pytest.mark.parametrize("height", [1, 3, 4, 6, 16])  # loops process four rows at a time
with_and_without_loops = pytest.mark.parametrize("loops", [True, False], indirect=True)


@pytest.fixture(autouse=True)
def loops(request: pytest.FixtureRequest, monkeypatch: Patch) -> None:
    if not getattr(request, "param", True):
        hide_loops(monkeypatch)


def hide_loops(monkeypatch: Patch) -> None:
    monkeypatch.setattr(kernels, "loops_for", lambda *tensors: None)


def factors(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    return random(rank, 6, seed=1), random(rank, 10, seed=2)


def plain(rank: int, shape: tuple[int, ...] = (6, 10)) -> torch.Tensor:
    """The product, as a sum of outer products."""
    left, right = factors(rank)
    return sum(torch.outer(column.double(), row.double()) for column, row in zip(left, right, strict=True)).view(shape)  # type: ignore[union-attr]


@every_rank
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", [(6, 10), (6, 5, 2), (6, 2, 5, 1)])
def test_a_product_is_the_sum_of_its_columns_times_its_rows(
    shape: tuple[int, ...], dtype: torch.dtype, rank: int
) -> None:
    product = LowRankProduct(*factors(rank), torch.empty(shape, dtype=dtype))
    written = product.dense()
    assert (written.shape, written.dtype) == (torch.Size(shape), dtype)
    tolerance = 20 * torch.finfo(torch.float32 if dtype == torch.float64 else dtype).eps
    torch.testing.assert_close(written.double(), plain(rank, shape), rtol=tolerance, atol=tolerance)


@every_rank
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_copy_to_writes_into_the_target(rank: int, layout: torch.memory_format) -> None:
    shape = (6, 5, 2, 1)
    for dtype in (torch.float32, torch.bfloat16):
        product = LowRankProduct(*factors(rank), torch.empty(shape, dtype=dtype))
        tolerance = 20 * torch.finfo(dtype).eps
        target = random(*shape, seed=3, dtype=dtype).to(memory_format=layout)
        address = target.data_ptr()
        product.copy_to(target)
        torch.testing.assert_close(target.double(), plain(rank, shape), rtol=tolerance, atol=tolerance)
        assert target.data_ptr() == address


@with_and_without_loops
@every_rank
@pytest.mark.parametrize("decay", [1.0, 0.9])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_add_rest_gives_the_bits_of_separate_operations(dtype: torch.dtype, decay: float, rank: int) -> None:
    working = torch.promote_types(dtype, torch.float32)
    left, right = (factor.to(working) for factor in factors(rank))
    x, total = random(6, 5, 2, seed=3, dtype=dtype), random(6, 5, 2, seed=4, dtype=working)
    product, out = LowRankProduct(left, right, total), torch.empty_like(total)
    product.add_rest(x, decay, total, out)
    assert same_bits(out, (total - product.dense()) * decay + x)
    assert same_bits(total, random(6, 5, 2, seed=4, dtype=working))


@every_rank
def test_factors_are_not_modified(rank: int) -> None:
    left, right = factors(rank)
    product = LowRankProduct(left, right, torch.empty(6, 10))
    product.add_rest(product.dense(), 0.5, random(6, 10), torch.empty(6, 10))
    assert torch.equal(left, factors(rank)[0])
    assert torch.equal(right, factors(rank)[1])


@every_rank
@every_height
def test_compiled_loops_write_the_bits_of_their_twins(height: int, rank: int, monkeypatch: Patch) -> None:
    # Every rank computes the product, and not all of them may have numba.
    left, right = random(rank, height, seed=1), random(rank, 37, seed=2)
    x, total = random(height, 37, seed=3), random(height, 37, seed=4)
    product = LowRankProduct(left, right, total)

    def written() -> tuple[torch.Tensor, torch.Tensor]:
        rest = torch.empty_like(total)
        product.add_rest(x, 0.7, total, rest)
        return product.dense(), rest

    compiled = written()
    hide_loops(monkeypatch)
    assert same_bits(compiled, written())


@with_and_without_loops
@every_rank
@every_height
def test_products_with_a_factor_match_torch(height: int, rank: int) -> None:
    matrix, long, high = random(height, 37), random(rank, 37, seed=1), random(rank, height, seed=2)
    torch.testing.assert_close(dots(long, matrix), (long.double() @ matrix.double().T).float())
    torch.testing.assert_close(sums(high, matrix), (high.double() @ matrix.double()).float())


@with_and_without_loops
@every_rank
def test_products_with_a_factor_do_not_depend_on_alignment(rank: int) -> None:
    def moved(x: torch.Tensor, by: int) -> torch.Tensor:
        copy = torch.empty(x.numel() + by)[by:].view(x.shape)
        return copy.copy_(x)

    matrix, long, high = random(50, 300), random(rank, 300, seed=1), random(rank, 50, seed=2)
    here = dots(long, matrix), sums(high, matrix)
    for by in range(1, 17):
        assert same_bits((dots(moved(long, by), moved(matrix, by)), sums(moved(high, by), moved(matrix, by))), here)


@with_and_without_loops
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@every_rank
def test_entries_that_are_not_finite_reach_the_products(rank: int, value: float) -> None:
    for row, column in ((0, 0), (5, 9), (6, 3)):
        matrix = random(7, 10)
        matrix[row, column] = value
        assert not dots(random(rank, 10, seed=1), matrix)[:, row].isfinite().any()
        assert not sums(random(rank, 7, seed=2), matrix)[:, column].isfinite().any()


@every_rank
def test_nan_in_a_factor_is_nan_in_the_product(rank: int) -> None:
    left, right = factors(rank)
    right[0, 3] = torch.nan
    assert LowRankProduct(left, right, torch.empty(6, 10)).dense()[:, 3].isnan().all()


@with_and_without_loops
def test_renewed_scales_rows_to_magnitude_1_and_keeps_vanished_ones() -> None:
    last = random(4, 9, seed=1)
    factor = random(4, 9) * torch.tensor([[1e-20], [1e20], [0.0], [1.0]])
    factor[3, 5] = torch.nan
    new = renewed(factor, last)
    assert new[:2].abs().amax(1).tolist() == [1.0, 1.0]
    assert same_bits(new[2:], last[2:]), "rows of zeros or with NaN are replaced by the last ones"


@every_rank
def test_compiled_loops_renew_a_factor_to_the_bits_of_their_twin(rank: int, monkeypatch: Patch) -> None:
    # Every rank computes it and starts the next step from it.
    factor, last = random(rank, 37) * 10.0 ** (20 * random(rank, 1, seed=1)), random(rank, 37, seed=2)
    compiled = renewed(factor, last)
    hide_loops(monkeypatch)
    assert same_bits(compiled, renewed(factor, last))
