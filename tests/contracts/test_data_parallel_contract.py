"""The contract of strategies that reduce gradients, checked for all of them."""

import io
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from thinwire.core.outcome import StepResult
from thinwire.core.states import plain, restored
from thinwire.extend import Replica, Strategy
from thinwire.simulate import Simulated, replica_of

from ..helpers import random, same_bits, same_states
from .table import DATA_PARALLEL

every_strategy = pytest.mark.parametrize("strategy", DATA_PARALLEL, ids=repr)


def replicas(ranks: int) -> list[Replica]:
    """The same small model on every rank, with a layer of each kind that strategies distinguish."""
    found = []
    for rank in range(ranks):
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(40, 24))
        found.append(replica_of(model, rank=rank, size=ranks))
    return found


def set_gradients(replica: Replica, seed: int) -> None:
    for i, p in enumerate(replica.parameters.values()):
        p.grad = random(*p.shape, seed=100 * seed + 10 * i + replica.rank)


def gradients(replica: Replica) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in replica.parameters.items() if p.grad is not None}


def step(strategy: Strategy, ranks: list[Replica], states: list[Any]) -> list[StepResult]:
    """The exchanges of one training step, on every rank."""
    transport = Simulated(len(ranks))
    before = transport.run([strategy.before_update(r, s) for r, s in zip(ranks, states, strict=True)])
    after = transport.run([strategy.after_update(r, o.state) for r, o in zip(ranks, before, strict=True)])
    return [StepResult(a.state, b.nonfinite + a.nonfinite) for a, b in zip(after, before, strict=True)]


@pytest.mark.parametrize("size", [1, 2, 3])
@every_strategy
def test_all_replicas_get_the_same_gradient(strategy: Strategy, size: int) -> None:
    ranks = replicas(size)
    states = [strategy.init(r) for r in ranks]
    for i in range(3):
        for replica in ranks:
            set_gradients(replica, i)
        results = step(strategy, ranks, states)
        states = [result.state for result in results]
        assert all(not result.nonfinite for result in results)
        assert all(same_bits(gradients(replica), gradients(ranks[0])) for replica in ranks)
        assert all(g.isfinite().all() and g.any() for g in gradients(ranks[0]).values())


@every_strategy
def test_a_parameter_without_gradient_counts_as_zero(strategy: Strategy) -> None:
    # The parameter may be used on other ranks, which wait for this rank's message.
    missing_gradient, zero_gradient = replicas(2), replicas(2)
    results = []
    for ranks, gradient in ((missing_gradient, None), (zero_gradient, torch.zeros(24))):
        for replica in ranks:
            set_gradients(replica, 1)
        ranks[1].parameters["3.bias"].grad = gradient
        results.append(step(strategy, ranks, [strategy.init(r) for r in ranks]))
    assert same_bits(gradients(missing_gradient[0]), gradients(zero_gradient[0]))
    assert same_bits(gradients(missing_gradient[1]), gradients(zero_gradient[1]))


@every_strategy
def test_a_non_finite_gradient_becomes_nan_on_all_ranks_and_the_state_is_kept(strategy: Strategy) -> None:
    ranks = replicas(2)
    states = [strategy.init(r) for r in ranks]
    for replica in ranks:
        set_gradients(replica, 0)
    states = [result.state for result in step(strategy, ranks, states)]
    before = [plain(state) for state in states]
    for replica in ranks:
        set_gradients(replica, 1)
        for p in replica.parameters.values():
            p.grad.view(-1)[0] = math.inf if replica.rank else 1.0  # type: ignore[union-attr]
    results = step(strategy, ranks, states)
    assert same_states([result.state for result in results], before)
    names = set(ranks[0].parameters)
    for rank, (replica, result) in enumerate(zip(ranks, results, strict=True)):
        assert {name for problem in result.nonfinite for name in problem.names} == names
        assert {name for problem in result.nonfinite for name in problem.here} == (names if rank else set())
        assert all(g.isnan().all() for g in gradients(replica).values())


@every_strategy
def test_resuming_from_a_checkpoint_gives_the_same_bits(strategy: Strategy) -> None:
    first, second = replicas(2), replicas(2)
    states = [strategy.init(r) for r in first]
    for i in range(2):
        for replica in first:
            set_gradients(replica, i)
        states = [result.state for result in step(strategy, first, states)]
    file = io.BytesIO()
    torch.save([plain(state) for state in states], file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    copies = [restored(strategy.init(r), state) for r, state in zip(second, saved, strict=True)]
    for i in range(2):
        for replica in (*first, *second):
            set_gradients(replica, 10 + i)
        states = [result.state for result in step(strategy, first, states)]
        copies = [result.state for result in step(strategy, second, copies)]
        assert same_bits(gradients(first[0]), gradients(second[0]))
        assert same_states(states, copies)
