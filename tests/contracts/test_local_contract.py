"""What every strategy promises in which replicas take steps of their own and meet, over the table of all of them."""

import io
from copy import deepcopy

import pytest
import torch
from torch import Tensor

from thinwire import Hierarchical, LeaderSGD
from thinwire.core.states import plain, restored
from thinwire.extend import Independent
from thinwire.strategies.hierarchical import INSIDE
from thinwire.strategies.local_sgd import WARM_UP

from ..helpers import random, same_bits, same_states
from ..reference_run import ReferenceRun
from .table import LOCAL
from .test_decentralized_contract import replicas

every_strategy = pytest.mark.parametrize("strategy", LOCAL, ids=repr)
RANKS = 4


def stepped(reference: ReferenceRun, steps: range) -> None:
    """Each replica has gradients and losses of its own, and goes along them."""
    for step in steps:
        for rank, replica in enumerate(reference.replicas):
            for i, p in enumerate(replica.parameters.values()):
                p.grad = random(*p.shape, seed=10_000 * step + 100 * rank + i, dtype=p.dtype)
        reference.before_update([(rank + step) % RANKS for rank in range(RANKS)])
        for replica in reference.replicas:
            for p in replica.parameters.values():
                p.data.sub_(p.grad, alpha=0.1)  # type: ignore[arg-type]  # it has one
        reference.after_update()


def tensors(reference: ReferenceRun) -> list[dict[str, Tensor]]:
    return [{name: p.detach().clone() for name, p in r.parameters.items()} for r in reference.replicas]


@every_strategy
def test_replicas_that_are_alike_stay_as_they_are(strategy: Independent) -> None:
    reference = ReferenceRun(strategy, replicas(RANKS, alike=True))
    before = tensors(reference)[0]
    coarse = (
        0.02 if isinstance(strategy, LeaderSGD) and not strategy.codec.linear else 1e-5
    )  # a leader as it was decoded
    for _ in range(9):
        for replica in reference.replicas:
            for p in replica.parameters.values():
                p.grad = torch.zeros_like(p)
        reference.before_update([1.0] * RANKS)
        reference.after_update()
    reference.land()
    for found in tensors(reference):
        for name, x in found.items():
            torch.testing.assert_close(x, before[name], rtol=1e-5, atol=coarse)


@every_strategy
def test_replicas_stay_closer_than_alone(strategy: Independent) -> None:
    reference = ReferenceRun(strategy, replicas(RANKS, alike=True))
    alone = ReferenceRun(LOCAL[0].__class__(LOCAL[0].reducer, every=1000), replicas(RANKS, alike=True))  # type: ignore[attr-defined,call-arg]
    for ranks in (reference, alone):
        stepped(ranks, range(16))
    assert reference.consensus().distance < 0.9 * alone.consensus().distance


@every_strategy
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_other_types_are_said_too(strategy: Independent, dtype: torch.dtype) -> None:
    reference = ReferenceRun(strategy, replicas(RANKS, dtype, alike=True))
    stepped(reference, range(9))
    found = reference.consensus()
    assert all(p.dtype == dtype for p in reference.replicas[0].parameters.values())
    assert all(mean.isfinite().all() for mean in found.means.values())


@every_strategy
def test_a_checkpoint_at_any_step_goes_on_to_the_bit(strategy: Independent) -> None:
    """Whatever a method is in the midst of: warming up, on its own, with a meeting on its way."""
    for at in range(1, 7):
        first = ReferenceRun(strategy, replicas(RANKS, alike=True))
        stepped(first, range(at))
        first.land()
        file = io.BytesIO()
        torch.save([plain(state) for state in first.states], file)
        file.seek(0)
        second = ReferenceRun(strategy, [r._replace(parameters=deepcopy(r.parameters)) for r in first.replicas])
        states = torch.load(file, weights_only=True)
        second.states = [restored(state, saved) for state, saved in zip(second.states, states, strict=True)]
        for meter in second.meters:
            meter.steps = at
        for reference in (first, second):
            stepped(reference, range(at, at + 5))
            reference.land()
        assert same_states(first.states, second.states)
        for here, there in zip(tensors(first), tensors(second), strict=True):
            assert all(same_bits(x, there[name]) for name, x in here.items())


@every_strategy
def test_all_that_is_said_is_about_a_layer(strategy: Independent) -> None:
    """But for a warm-up, and what stays within groups."""
    reference = ReferenceRun(strategy, replicas(RANKS, alike=True))
    stepped(reference, range(strategy.warm_up, strategy.warm_up + 8))
    reference.land()
    found = [reference.layers(rank) for rank in range(RANKS)]
    for layers, meter in zip(found, reference.meters, strict=True):
        aside = sum(meter.payload_by_unit.get(about, 0) for about in (INSIDE, WARM_UP, ""))
        assert sum(layer.payload_bytes for layer in layers.values()) == meter.payload_bytes - aside
    names = {name for layers in found for layer in layers.values() for name in layer.names}
    alone = isinstance(strategy, Hierarchical) and len(reference.groups) == 1  # there is nobody else to speak with
    assert names == (set() if alone else set(reference.replicas[0].parameters))
    if not isinstance(strategy, Hierarchical):
        assert all({name for layer in layers.values() for name in layer.names} == names for layers in found)


@every_strategy
def test_nothing_is_said_around_updates_that_are_said_to_be_silent(strategy: Independent) -> None:
    reference = ReferenceRun(strategy, replicas(RANKS, alike=True))
    for step in range(1, 14):
        before = [meter.rounds for meter in reference.meters]
        stepped(reference, range(step, step + 1))
        if not strategy.will_communicate(step):
            assert [meter.rounds for meter in reference.meters] == before, step
