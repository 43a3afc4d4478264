import numpy as np
import pytest
import torch

from thinwire.core.lazy import DeferredDifference
from thinwire.kernels import selection as top_k
from thinwire.kernels.sparse_tensor import SparseTensor

from ..helpers import random, same_bits
from .kernel_inputs import KINDS, LARGE, SIZES, vector
from .twins import on_one_thread

Patch = pytest.MonkeyPatch
RATIOS = (0.001, 0.01, 0.3, 1.0)


def of(size: int, ratio: float) -> int:
    return min(size, max(1, round(ratio * size)))


def in_order(x: torch.Tensor, count: int) -> list[int]:
    """The positions of the largest entries, found by sorting by magnitude and then by position."""
    return sorted(sorted(range(len(x)), key=lambda i: (-abs(x[i].item()), i))[:count])


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_largest_selects_the_largest_and_of_equal_ones_the_first(kind: str, compiled: bool, monkeypatch: Patch) -> None:
    if not compiled:
        monkeypatch.setattr(top_k, "loops_for", lambda *tensors: None)
    for size in (1, 2, 65, 700):
        x = vector(kind, size)
        for ratio in RATIOS:
            found = top_k.largest(x, of(size, ratio))
            assert found.where.tolist() == in_order(x, of(size, ratio))
            assert torch.equal(found.values, x[found.where])


def plain(x: torch.Tensor, count: int) -> torch.Tensor:
    return on_one_thread(lambda: top_k._plain(x, count))


def check_twins(x: torch.Tensor, ratio: float) -> None:
    size, count = len(x), of(len(x), ratio)
    assert torch.equal(top_k.largest(x, count).where, plain(x, count))
    for rest, decay in ((torch.zeros(size), 1.0), (random(size, seed=3), 0.9), (-x, 0.5)):
        out, total = torch.empty(size), torch.mul(rest, decay).add_(x)
        found = top_k.largest_of_sum(x, DeferredDifference(rest), decay, out, count)
        assert same_bits(out, total)
        assert torch.equal(found.where, plain(total, count))
        assert same_bits(found.values, total[found.where])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_the_loops_give_the_bits_of_their_twin(size: int, kind: str) -> None:
    for ratio in RATIOS:
        check_twins(vector(kind, size), ratio)


@pytest.mark.parametrize("kind", KINDS)
def test_the_loops_give_the_bits_of_their_twin_on_any_number_of_threads(threads: int, kind: str) -> None:
    for ratio in (0.001, 0.3):
        check_twins(vector(kind, LARGE), ratio)


@pytest.mark.parametrize("kind", KINDS)
def test_nontemporal_stores_write_the_same_bits(threads: int, kind: str, monkeypatch: Patch) -> None:
    monkeypatch.setattr(top_k, "FAR", 0)
    check_twins(vector(kind, LARGE), 0.01)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("size", [1000, 200_003])
def test_entries_that_are_not_finite_are_selected(size: int, value: float) -> None:
    x = random(size)
    x[size // 2] = -value
    for found in (
        top_k.largest(x, 1),
        top_k.largest_of_sum(x, DeferredDifference(torch.zeros(size)), 1.0, torch.empty(size), 1),
    ):
        assert found.where.tolist() == [size // 2]


def test_a_misleading_sample_is_detected(monkeypatch: Patch) -> None:
    """A threshold that is too high gives too few candidates, one too low too many: then sizes are counted."""
    x = random(200_003)
    counted = []
    by_bits = top_k._least_by_bits
    monkeypatch.setattr(top_k, "_least_by_bits", lambda *arguments: counted.append(1) or by_bits(*arguments))  # type: ignore[func-returns-value]
    top_k.largest(x, 2000)
    assert not counted, "normal entries do not mislead"
    real = np.partition
    for wrong in (1.1, 0.9):
        # Sizes as integer bits, wrong by a tenth.
        monkeypatch.setattr(
            np, "partition", lambda *arguments, wrong=wrong: (real(*arguments) * wrong).astype(np.int32)
        )
        found = top_k.largest(x, 2000).where
        monkeypatch.setattr(np, "partition", real)
        assert torch.equal(found, top_k._plain(x, 2000))
    assert len(counted) == 2


def test_other_types_and_layouts_select_the_same_entries() -> None:
    x = random(60, 50).round()
    want = top_k.largest(x, 100)
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        found = top_k.largest(x.to(dtype), 100)
        assert torch.equal(found.where, want.where)
        assert found.values.dtype == dtype
    transposed = x.T.contiguous().T
    assert not transposed.is_contiguous()
    assert torch.equal(top_k.largest(transposed, 100).where, want.where)
    assert isinstance(want, SparseTensor)
