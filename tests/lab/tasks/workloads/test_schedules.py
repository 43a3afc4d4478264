import pytest
import torch

from thinwire.lab.tasks.workloads.schedules import cosine, poly, stepped


def rates(schedule, steps, **how):
    """The rate of every step, and the rate after the last one."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=2.0)
    scheduler = schedule(optimizer, steps, **how)
    seen = [optimizer.param_groups[0]["lr"]]
    for _ in range(steps):
        optimizer.step()
        scheduler.step()
        seen.append(optimizer.param_groups[0]["lr"])
    return seen


def test_stepped_divides_at_fractions_of_the_training():
    seen = rates(stepped, 8, at=(0.5, 0.75))
    assert seen == pytest.approx([2, 2, 2, 2, 0.2, 0.2, 0.02, 0.02, 0.02])


def test_cosine_equals_torchs_cosine_annealing():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=2.0)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    expected = [2.0]
    for _ in range(10):
        optimizer.step()
        scheduler.step()
        expected.append(optimizer.param_groups[0]["lr"])
    assert rates(cosine, 10) == pytest.approx(expected, abs=1e-12)


def test_cosine_warms_up_and_ends_at_the_given_factor():
    seen = rates(cosine, 100, warmup=0.1, end=0.1)
    assert seen[:11] == pytest.approx([2 * (step + 1) / 11 for step in range(11)])
    assert max(seen) == seen[10] == 2.0
    assert seen[10:] == sorted(seen[10:], reverse=True)
    assert seen[100] == pytest.approx(0.2)


def test_poly_is_a_power_of_the_remaining_fraction():
    assert rates(poly, 4, power=0.5) == pytest.approx([2, 2 * 0.75**0.5, 2 * 0.5**0.5, 1, 0])
