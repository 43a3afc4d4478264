import pytest
import torch

from thinwire.kernels import bins
from thinwire.kernels.sparse_tensor import SparseTensor

from ..helpers import random, same_bits
from .kernel_inputs import KINDS, LARGE, SIZES, vector
from .twins import on_one_thread


@pytest.fixture(params=["compiled", "plain"])
def select(request, monkeypatch):
    """A function that selects entries of a total, given the gradient that was added last."""
    if request.param == "plain":
        monkeypatch.setattr(bins, "loops_for", lambda *tensors: None)

    def selected(total, gradient, bin_size, factor):
        out = torch.empty(total.shape)
        selected_values = bins.add_and_select(gradient, (total - gradient).contiguous(), out, bin_size, factor)
        assert torch.equal(out, total) or not total.isfinite().all()
        return selected_values.dense() if isinstance(selected_values, SparseTensor) else selected_values

    return selected


def one_by_one(total, gradient, bin_size, factor):
    """The paper's algorithm, bin after bin and entry after entry."""
    flat, again = total.flatten().tolist(), gradient.flatten().tolist()
    bins = [range(start, min(start + bin_size, len(flat))) for start in range(0, len(flat), bin_size)]
    largest = [max(abs(flat[j]) for j in members) for members in bins]
    scale = torch.tensor(sum(largest) / len(bins)).item()
    selected_values = [0.0] * len(flat)
    for members, most in zip(bins, largest, strict=True):
        for j in members:
            if most > 0 and abs(flat[j] + (factor - 1) * again[j]) >= most and flat[j]:
                selected_values[j] = scale if flat[j] > 0 else -scale
    return torch.tensor(selected_values).view(total.shape)


# Eighths, so that sums are exact, and ties are ties.
def eighths(*shape, seed=0):
    return torch.randint(-40, 41, shape, generator=torch.Generator().manual_seed(seed)) / 8


@pytest.mark.parametrize("bin_size", [1, 7, 50, 1000])
@pytest.mark.parametrize("factor", [1.0, 2.0, 3.0])
def test_selection_matches_the_algorithm_of_the_paper(select, bin_size, factor):
    total, gradient = eighths(23, 17), eighths(23, 17, seed=1)
    torch.testing.assert_close(
        select(total, gradient, bin_size, factor), one_by_one(total, gradient, bin_size, factor), rtol=1e-6, atol=0
    )


def test_bins_of_zeros_send_nothing(select):
    total = torch.zeros(20)
    total[3] = 4.0
    selected_values = select(total, torch.zeros(20), 5, 2.0)
    assert selected_values.nonzero().tolist() == [[3]]
    assert selected_values[3] == 1.0, "the mean of the largest in four bins"
    assert not select(torch.zeros(20), torch.ones(20), 5, 2.0).any(), "zeros are not sent, whatever the gradient"


def test_a_bin_whose_largest_entry_shrinks_may_send_nothing(select):
    # The gradient opposes the residual: with the gradient counted twice, no entry reaches the largest.
    total = torch.tensor([4.0, 3.0, 2.0])
    assert not select(total, torch.tensor([-1.0, -1.0, -1.0]), 3, 2.0).any()


def test_the_memory_layout_does_not_change_the_selection(select):
    total, gradient = eighths(4, 6, 5, 5), eighths(4, 6, 5, 5, seed=1)
    other = select(total.contiguous(memory_format=torch.channels_last), gradient.mT.contiguous().mT, 50, 2.0)
    assert torch.equal(other, select(total, gradient, 50, 2.0))


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_entries_that_are_not_finite_give_nan(select, value):
    total = torch.ones(100)
    total[42] = value
    assert select(total, torch.zeros(100), 10, 2.0).isnan().all()


def check_twins(gradient, rest, bin_size, factor):
    outs = torch.empty(len(rest)), torch.empty(len(rest))
    selected_values = bins.add_and_select(gradient, rest, outs[0], bin_size, factor)
    twin = on_one_thread(lambda: bins._plain(gradient, rest, outs[1], bin_size, factor))
    assert same_bits(*outs)
    if isinstance(twin, SparseTensor):
        assert torch.equal(selected_values.where, twin.where)
        assert same_bits(selected_values.values, twin.values)
    else:
        assert isinstance(selected_values, torch.Tensor)
        assert selected_values.isnan().all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_the_loops_give_the_bits_of_their_twin(size, kind):
    gradient = vector(kind, size)
    for rest in (random(size, seed=3), torch.zeros(size), gradient):
        for bin_size in (1, 7, 32, 50, 64, 500):
            for factor in (1.0, 2.0, 2.7):
                check_twins(gradient, rest, bin_size, factor)


@pytest.mark.parametrize("kind", KINDS)
def test_the_loops_give_the_bits_of_their_twin_on_any_number_of_threads(threads, kind):
    for bin_size in (50, 70_000):
        check_twins(vector(kind, LARGE), random(LARGE, seed=3), bin_size, 2.0)
