"""The contract of strategies with local steps and synchronizations, checked for all of them."""

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
    """Steps in which each replica has its own gradients and loss."""
    for step in steps:
        for rank, replica in enumerate(reference.replicas):
            for i, p in enumerate(replica.parameters.values()):
                p.grad = random(*p.shape, seed=10_000 * step + 100 * rank + i, dtype=p.dtype)
        reference.before_update([(rank + step) % RANKS for rank in range(RANKS)])
        for replica in reference.replicas:
            for p in replica.parameters.values():
                p.data.sub_(p.grad, alpha=0.1)  # type: ignore[arg-type]  # grad is set above
        reference.after_update()


def tensors(reference: ReferenceRun) -> list[dict[str, Tensor]]:
    return [{name: p.detach().clone() for name, p in r.parameters.items()} for r in reference.replicas]


@every_strategy
def test_identical_replicas_with_zero_gradients_do_not_change(strategy: Independent) -> None:
    reference = ReferenceRun(strategy, replicas(RANKS, identical=True))
    before = tensors(reference)[0]
    quantized = isinstance(strategy, LeaderSGD) and not strategy.codec.linear  # the leader's parameters
    tolerance = 0.02 if quantized else 1e-5
    for _ in range(9):
        for replica in reference.replicas:
            for p in replica.parameters.values():
                p.grad = torch.zeros_like(p)
        reference.before_update([1.0] * RANKS)
        reference.after_update()
    reference.land()
    for found in tensors(reference):
        for name, x in found.items():
            torch.testing.assert_close(x, before[name], rtol=1e-5, atol=tolerance)


@every_strategy
def test_replicas_stay_closer_than_with_local_training(strategy: Independent) -> None:
    reference = ReferenceRun(strategy, replicas(RANKS, identical=True))
    local = ReferenceRun(LOCAL[0].__class__(LOCAL[0].reducer, every=1000), replicas(RANKS, identical=True))  # type: ignore[attr-defined,call-arg]
    for ranks in (reference, local):
        stepped(ranks, range(16))
    assert reference.consensus().distance < 0.9 * local.consensus().distance


@every_strategy
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_other_dtypes_work(strategy: Independent, dtype: torch.dtype) -> None:
    reference = ReferenceRun(strategy, replicas(RANKS, dtype, identical=True))
    stepped(reference, range(9))
    found = reference.consensus()
    assert all(p.dtype == dtype for p in reference.replicas[0].parameters.values())
    assert all(mean.isfinite().all() for mean in found.means.values())


@every_strategy
def test_resuming_from_a_checkpoint_at_any_step_gives_the_same_bits(strategy: Independent) -> None:
    """During warm-up, between synchronizations, and while one is in flight."""
    for at in range(1, 7):
        first = ReferenceRun(strategy, replicas(RANKS, identical=True))
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
        for expected, resumed in zip(tensors(first), tensors(second), strict=True):
            assert all(same_bits(x, resumed[name]) for name, x in expected.items())


@every_strategy
def test_payload_bytes_are_attributed_to_layers(strategy: Independent) -> None:
    """Except those of a warm-up, and those within groups."""
    reference = ReferenceRun(strategy, replicas(RANKS, identical=True))
    stepped(reference, range(strategy.warm_up, strategy.warm_up + 8))
    reference.land()
    found = [reference.layers(rank) for rank in range(RANKS)]
    for layers, meter in zip(found, reference.meters, strict=True):
        other = sum(meter.payload_by_unit.get(unit, 0) for unit in (INSIDE, WARM_UP, ""))
        assert sum(layer.payload_bytes for layer in layers.values()) == meter.payload_bytes - other
    names = {name for layers in found for layer in layers.values() for name in layer.names}
    one_group = isinstance(strategy, Hierarchical) and len(reference.groups) == 1  # nothing is sent between groups
    assert names == (set() if one_group else set(reference.replicas[0].parameters))
    if not isinstance(strategy, Hierarchical):
        assert all({name for layer in layers.values() for name in layer.names} == names for layers in found)


@every_strategy
def test_nothing_is_exchanged_in_steps_without_communication(strategy: Independent) -> None:
    reference = ReferenceRun(strategy, replicas(RANKS, identical=True))
    for step in range(1, 14):
        before = [meter.rounds for meter in reference.meters]
        stepped(reference, range(step, step + 1))
        if not strategy.will_communicate(step):
            assert [meter.rounds for meter in reference.meters] == before, step
