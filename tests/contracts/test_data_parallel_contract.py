"""What every strategy promises that reduces gradients, over the table of all of them."""

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
    """The same small model on every rank, with a layer of each sort that the strategies tell apart."""
    made = []
    for rank in range(ranks):
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(40, 24))
        made.append(replica_of(model, rank=rank, size=ranks))
    return made


def set_gradients(replica: Replica, seed: int) -> None:
    for i, p in enumerate(replica.parameters.values()):
        p.grad = random(*p.shape, seed=100 * seed + 10 * i + replica.rank)


def gradients(replica: Replica) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in replica.parameters.items() if p.grad is not None}


def step(strategy: Strategy, ranks: list[Replica], states: list[Any]) -> list[StepResult]:
    """One training step's talks on every rank."""
    transport = Simulated(len(ranks))
    before = transport.run([strategy.before_update(r, s) for r, s in zip(ranks, states, strict=True)])
    after = transport.run([strategy.after_update(r, o.state) for r, o in zip(ranks, before, strict=True)])
    return [StepResult(a.state, b.nonfinite + a.nonfinite) for a, b in zip(after, before, strict=True)]


@pytest.mark.parametrize("size", [1, 2, 3])
@every_strategy
def test_all_replicas_step_with_the_same_gradient(strategy: Strategy, size: int) -> None:
    ranks = replicas(size)
    states = [strategy.init(r) for r in ranks]
    for i in range(3):
        for replica in ranks:
            set_gradients(replica, i)
        outcomes = step(strategy, ranks, states)
        states = [outcome.state for outcome in outcomes]
        assert all(not outcome.nonfinite for outcome in outcomes)
        assert all(same_bits(gradients(replica), gradients(ranks[0])) for replica in ranks)
        assert all(g.isfinite().all() and g.any() for g in gradients(ranks[0]).values())


@every_strategy
def test_a_parameter_without_gradient_counts_as_zero(strategy: Strategy) -> None:
    # Unused on this rank does not mean unused on the others, who wait for what it says.
    some, zero = replicas(2), replicas(2)
    outcomes = []
    for ranks, missing in ((some, None), (zero, torch.zeros(24))):
        for replica in ranks:
            set_gradients(replica, 1)
        ranks[1].parameters["3.bias"].grad = missing
        outcomes.append(step(strategy, ranks, [strategy.init(r) for r in ranks]))
    assert same_bits(gradients(some[0]), gradients(zero[0]))
    assert same_bits(gradients(some[1]), gradients(zero[1]))


@every_strategy
def test_a_bad_gradient_is_nan_everywhere_and_the_state_stays(strategy: Strategy) -> None:
    ranks = replicas(2)
    states = [strategy.init(r) for r in ranks]
    for replica in ranks:
        set_gradients(replica, 0)
    states = [outcome.state for outcome in step(strategy, ranks, states)]
    before = [plain(state) for state in states]
    for replica in ranks:
        set_gradients(replica, 1)
        for p in replica.parameters.values():
            p.grad.view(-1)[0] = math.inf if replica.rank else 1.0  # type: ignore[union-attr]
    outcomes = step(strategy, ranks, states)
    assert same_states([outcome.state for outcome in outcomes], before)
    names = set(ranks[0].parameters)
    for rank, (replica, outcome) in enumerate(zip(ranks, outcomes, strict=True)):
        assert {name for lost in outcome.nonfinite for name in lost.names} == names
        assert {name for lost in outcome.nonfinite for name in lost.here} == (names if rank else set())
        assert all(g.isnan().all() for g in gradients(replica).values())


@every_strategy
def test_a_checkpoint_goes_on_to_the_bit(strategy: Strategy) -> None:
    first, second = replicas(2), replicas(2)
    states = [strategy.init(r) for r in first]
    for i in range(2):
        for replica in first:
            set_gradients(replica, i)
        states = [outcome.state for outcome in step(strategy, first, states)]
    file = io.BytesIO()
    torch.save([plain(state) for state in states], file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    copies = [restored(strategy.init(r), state) for r, state in zip(second, saved, strict=True)]
    for i in range(2):
        for replica in (*first, *second):
            set_gradients(replica, 10 + i)
        states = [outcome.state for outcome in step(strategy, first, states)]
        copies = [outcome.state for outcome in step(strategy, second, copies)]
        assert same_bits(gradients(first[0]), gradients(second[0]))
        assert same_states(states, copies)
