import pytest
import torch

from thinwire.kernels.product import FEW, Product

from ..helpers import random

RANKS = (1, 2, FEW, FEW + 1, 9)
TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
every_rank = pytest.mark.parametrize("rank", RANKS)


def factors(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    return random(rank, 6, seed=1), random(rank, 10, seed=2)


def plain(rank: int, shape: tuple[int, ...] = (6, 10)) -> torch.Tensor:
    """What the kernel computes, in the plainest way."""
    left, right = factors(rank)
    return sum(torch.outer(column.double(), row.double()) for column, row in zip(left, right, strict=True)).view(shape)  # type: ignore[union-attr]


@every_rank
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", [(6, 10), (6, 5, 2), (6, 2, 5, 1)])
def test_a_product_is_the_sum_of_its_columns_times_its_rows(
    shape: tuple[int, ...], dtype: torch.dtype, rank: int
) -> None:
    product = Product(*factors(rank), torch.empty(shape, dtype=dtype))
    written = product.dense()
    assert (written.shape, written.dtype) == (torch.Size(shape), dtype)
    tolerance = 20 * torch.finfo(torch.float32 if dtype == torch.float64 else dtype).eps
    torch.testing.assert_close(written.double(), plain(rank, shape), rtol=tolerance, atol=tolerance)


@every_rank
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_it_is_written_and_subtracted_where_it_belongs(rank: int, layout: torch.memory_format) -> None:
    shape = (6, 5, 2, 1)
    for dtype in (torch.float32, torch.bfloat16):
        product = Product(*factors(rank), torch.empty(shape, dtype=dtype))
        tolerance = 20 * torch.finfo(dtype).eps
        target = random(*shape, seed=3, dtype=dtype).to(memory_format=layout)
        before, place = target.double().clone(), target.data_ptr()
        product.subtract_from(target)
        torch.testing.assert_close(target.double(), before - plain(rank, shape), rtol=tolerance, atol=8 * tolerance)
        product.copy_to(target)
        torch.testing.assert_close(target.double(), plain(rank, shape), rtol=tolerance, atol=tolerance)
        assert target.data_ptr() == place


@every_rank
def test_the_factors_are_left_as_they_were(rank: int) -> None:
    left, right = factors(rank)
    product = Product(left, right, torch.empty(6, 10))
    product.dense()
    product.subtract_from(random(6, 10))
    assert torch.equal(left, factors(rank)[0])
    assert torch.equal(right, factors(rank)[1])


@every_rank
def test_nan_in_a_factor_is_nan_in_the_product(rank: int) -> None:
    left, right = factors(rank)
    right[0, 3] = torch.nan
    assert Product(left, right, torch.empty(6, 10)).dense()[:, 3].isnan().all()
