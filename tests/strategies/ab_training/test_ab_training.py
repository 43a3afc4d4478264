"""AB-training: phases, groups, synchronization modes, the optimizer, checkpoints and bytes."""

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import StepLR

from thinwire import ABTraining, ByHost, DataParallel, GroupsOf, Identity, NonFiniteError, OneGroup, Quantize
from thinwire.core.states import plain, restored
from thinwire.strategies import factored_model_of
from thinwire.strategies.ab_training import merged
from thinwire.strategies.ab_training.ab_training import FACTORS, WEIGHTS
from thinwire.strategies.ab_training.synchronization import SYNC

from ...helpers import same_bits, same_states
from ..models import Ranks, close, loss_of

SHORT = {"after": 3, "every": 6, "full": 2, "rebound": 0, "cutoff": 0.1}


def deep() -> nn.Module:
    torch.manual_seed(4)
    return nn.Sequential(
        nn.Linear(6, 12), nn.BatchNorm1d(12), nn.Tanh(), nn.Linear(12, 10), nn.Tanh(), nn.Linear(10, 3)
    )


def adam(m: nn.Module) -> Optimizer:
    return AdamW(m.parameters(), lr=0.01)


def momentum(m: nn.Module) -> Optimizer:
    return SGD(m.parameters(), lr=0.1, momentum=0.9)


def ranks(size: int = 4, make: Any = momentum, hosts: tuple[str, ...] = (), **settings: Any) -> Ranks:
    return Ranks(ABTraining(**(SHORT | settings)), size, make, hosts, deep)


def entry(crew: Ranks, rank: int = 0) -> Any:
    (found,) = factored_model_of(crew.replicas[rank]).factorable
    return found


def strategy(crew: Ranks) -> ABTraining:
    assert isinstance(crew.reference.strategy, ABTraining)
    return crew.reference.strategy


def weights(crew: Ranks) -> list[Tensor]:
    return [entry(crew, rank).matrix().clone() for rank in range(len(crew.models))]


# --- phases


def test_full_rank_and_factored_phases_alternate() -> None:
    crew = ranks()
    phases = []
    for _ in range(16):
        phases.append(entry(crew).rank is not None)
        crew.train(1)
    full, factored = [False], [True]
    assert phases == full * 3 + factored * 4 + full * 2 + factored * 4 + full * 2 + factored


def test_without_full_rank_steps_weights_are_factored_again() -> None:
    crew = ranks(full=0)
    crew.train(3)
    first = entry(crew).a.detach().clone()
    crew.train(6)
    assert entry(crew).rank is not None
    assert not torch.equal(first, entry(crew).a.detach())
    assert len({tuple(x.flatten().tolist()) for x in weights(crew)}) == 1, "all replicas are identical again"


def test_training_starts_with_data_parallel_steps() -> None:
    crew, dense = ranks(after=8).train(8), Ranks(DataParallel(Identity()), 4, momentum, build=deep).train(8)
    for rank in range(4):
        close(
            {n: p for n, p in crew.parameters(rank).items() if "factor" not in n and n != "3.weight"},
            {n: p for n, p in dense.parameters(rank).items() if n != "3.weight"},
            rtol=0,
            atol=0,
        )


def test_after_0_factors_the_model_after_the_first_update() -> None:
    """There is no full-rank phase before."""
    crew = ranks(after=0)
    phases = [entry(crew.train(1)).rank is not None for _ in range(8)]
    assert phases == [True] * 4 + [False] * 2 + [True] * 2


def test_the_first_factors_are_truncated_too() -> None:
    """Otherwise they would have more entries than the weight."""
    crew = ranks(cutoff=0.6).train(2)
    singular = torch.linalg.svdvals(entry(crew).matrix())
    crew.train(1)
    assert 1 <= entry(crew).rank < 10
    assert entry(crew).rank < len(singular)
    truncated = torch.linalg.svdvals(entry(crew).matrix())
    assert float(truncated[entry(crew).rank - 1]) > 0.6 * float(truncated[0])


def test_all_ranks_have_the_factors_that_rank_0_computed() -> None:
    """Even if the math library of another rank gives factors of the opposite sign."""
    crew = ranks().train(2)
    for rank, replica in enumerate(crew.replicas):
        found = factored_model_of(replica).factorable[0]
        original = found.decomposed
        sign = 1.0 if rank == 0 else -1.0
        found.decomposed = lambda cutoff, original=original, sign=sign: tuple(sign * x for x in original(cutoff))  # type: ignore[method-assign]
    crew.train(1)
    for rank in range(4):
        assert same_bits(entry(crew, rank).a.detach(), entry(crew).a.detach())
        assert same_bits(entry(crew, rank).b.detach(), entry(crew).b.detach())


# --- groups


def test_one_half_of_the_ranks_trains_a_and_the_other_half_b() -> None:
    crew = ranks().train(3)
    a, b = entry(crew).a.detach().clone(), entry(crew).b.detach().clone()
    crew.train(2)
    for rank in (0, 1):
        assert same_bits(entry(crew, rank).b.detach(), b)
        assert not torch.equal(entry(crew, rank).a.detach(), a)
    for rank in (2, 3):
        assert same_bits(entry(crew, rank).a.detach(), a)
        assert not torch.equal(entry(crew, rank).b.detach(), b)
    first, second = crew.parameters(0), crew.parameters(2)
    close(crew.parameters(1), first, rtol=0, atol=0)
    close(crew.parameters(3), second, rtol=0, atol=0)
    assert not torch.equal(first["0.weight"], second["0.weight"]), "full-rank layers also differ between groups"


def test_no_messages_between_groups_while_factors_are_trained() -> None:
    crew = ranks().train(3)
    before = {rank: dict(meter.sent) for rank, meter in enumerate(crew.reference.meters)}
    crew.train(3)
    for rank, meter in enumerate(crew.reference.meters):
        neighbor = {0: 1, 1: 0, 2: 3, 3: 2}[rank]
        assert {other for other, n in meter.sent.items() if n > before[rank].get(other, 0)} == {neighbor}


@pytest.mark.parametrize(
    ("settings", "hosts", "groups", "trained"),
    [
        ({}, (), ((0, 1, 2), (3, 4, 5)), "aaabbb"),
        ({"groups": GroupsOf(2)}, (), ((0, 1), (2, 3), (4, 5)), "aaaabb"),
        ({"groups": ByHost()}, ("x", "y", "x", "z", "z", "x"), ((0, 2, 5), (1,), (3, 4)), "aaabba"),
        ({"groups": OneGroup()}, (), ((0, 1, 2, 3, 4, 5),), "bbbbbb"),
        ({"groups": GroupsOf(3), "sync": "only-b"}, (), ((0, 1, 2), (3, 4, 5)), "bbbbbb"),
    ],
)
def test_groups_and_the_factor_that_each_rank_trains(settings: Any, hosts: Any, groups: Any, trained: str) -> None:
    crew = ranks(6, hosts=hosts, **settings)
    assert strategy(crew).groups_of(6, hosts) == groups
    assert "".join(strategy(crew).trains(replica) for replica in crew.replicas) == trained
    crew.train(12)
    assert all(x.isfinite().all() for x in weights(crew))


def test_one_group_trains_b_with_identical_replicas() -> None:
    """The form without groups: replicas are identical at all times."""
    crew = ranks(groups=OneGroup(), sync="only-b")
    for _ in range(12):
        crew.train(1)
        assert crew.max_difference() == 0


# --- synchronization


def manual(crew: Ranks, sync: str) -> Tensor:
    """The weight after a synchronization, by the definition of the mode."""
    a = [entry(crew, r).a.detach() for r in range(4)]
    b = [entry(crew, r).b.detach() for r in range(4)]
    if sync == "only-learned":
        return torch.stack(a[:2]).mean(0) @ torch.stack(b[2:]).mean(0)
    if sync == "with-stale":
        return torch.stack(a).mean(0) @ torch.stack(b).mean(0)
    if sync == "only-b":
        return a[0] @ torch.stack(b).mean(0)
    return torch.stack([x @ y for x, y in zip(a, b, strict=True)]).mean(0)


@pytest.mark.parametrize("sync", ["only-learned", "with-stale", "full", "only-b"])
def test_each_sync_mode_follows_its_definition(sync: str) -> None:
    crew = ranks(sync=sync, groups=GroupsOf(2)).train(5)
    expected, rest = manual(crew, sync), [crew.parameters(r) for r in range(4)]
    with torch.no_grad():
        found = crew.reference.transport.run([strategy(crew).agreed(replica) for replica in crew.replicas])
    for agreed in found:
        torch.testing.assert_close(agreed["3.weight"], expected, rtol=1e-4, atol=1e-5)
        assert same_bits(agreed["3.weight"], found[0]["3.weight"])
        for name in ("0.weight", "0.bias", "1.weight", "3.bias", "5.weight", "5.bias"):
            mean = torch.stack([parameters[name] for parameters in rest]).mean(0)
            torch.testing.assert_close(agreed[name], mean, rtol=1e-4, atol=1e-6)
    close(crew.parameters(), rest[0], rtol=0, atol=0)


@pytest.mark.parametrize("sync", ["only-learned", "with-stale", "full", "only-b"])
def test_vectors_and_full_rank_layers_are_averaged_over_all_groups(sync: str) -> None:
    """The authors' code keeps those of one group and discards the others."""
    crew = ranks(sync=sync, groups=GroupsOf(2)).train(6)
    before = [crew.parameters(r)["5.bias"] for r in range(4)]
    assert not torch.equal(before[0], before[2])
    crew.train(1)
    assert crew.max_difference() == 0
    local = ranks(sync=sync, groups=GroupsOf(2), every=1000).train(7)
    mean = (local.parameters(0)["5.bias"] + local.parameters(2)["5.bias"]) / 2
    torch.testing.assert_close(crew.parameters()["5.bias"], mean, rtol=1e-4, atol=1e-6)


def test_batch_norm_statistics_are_not_exchanged() -> None:
    crew = ranks(2).train(5)
    statistics = [m[1].running_mean for m in crew.models]  # type: ignore[index,union-attr]
    assert not torch.equal(*statistics)  # type: ignore[call-overload]
    assert set(crew.reference.meters[0].payload_by_unit) <= {WEIGHTS, FACTORS, SYNC}


@pytest.mark.parametrize("sync", ["only-learned", "with-stale", "full", "only-b"])
@pytest.mark.parametrize("make", [momentum, adam])
def test_replicas_are_identical_in_full_rank_phases(sync: str, make: Any) -> None:
    """This requires identical optimizer states, including those of parameters that groups trained separately."""
    crew = ranks(sync=sync, groups=GroupsOf(2), make=make, full=3).train(3)
    assert crew.max_difference() == 0
    crew.train(2)
    assert crew.max_difference() > 0
    crew.train(1)
    for _ in range(3):
        assert entry(crew).rank is None
        assert crew.max_difference() == 0
        crew.train(1)


# --- merging


def test_factoring_without_truncation_does_not_change_the_model() -> None:
    crew = ranks(cutoff=0.0).train(2)
    unfactored = ranks(cutoff=0.0, after=1000).train(3)
    crew.train(1)
    for rank in range(4):
        torch.testing.assert_close(entry(crew, rank).matrix(), entry(unfactored, rank).matrix(), rtol=1e-5, atol=1e-6)
    x = torch.randn(5, 6)
    for m in (*crew.models, *unfactored.models):
        m.eval()
    torch.testing.assert_close(crew.models[0](x), unfactored.models[0](x), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(merged(crew.models[0]).eval()(x), unfactored.models[0](x), rtol=1e-4, atol=1e-5)


# --- the optimizer


def test_the_learning_rate_drops_at_each_change_of_phase_and_rises_again() -> None:
    crew = ranks(rebound=3)
    seen: list[float] = []
    for optimizer in crew.optimizers[:1]:
        step = optimizer.step
        optimizer.step = lambda *args, step=step, o=optimizer: (seen.append(o.param_groups[0]["lr"]), step())[1]  # type: ignore[method-assign]
    crew.train(10)
    low, third, two_thirds = 1e-5, 1e-5 + (0.1 - 1e-5) / 3, 1e-5 + (0.1 - 1e-5) * 2 / 3
    assert seen == pytest.approx([0.1] * 3 + [low, third, two_thirds, 0.1] + [low, third] + [low])
    assert crew.optimizers[0].param_groups[0]["lr"] == 0.1


def test_a_schedule_sees_the_unscaled_learning_rate() -> None:
    crew = ranks(rebound=4)
    schedule = StepLR(crew.optimizers[0], 1, 0.9)
    for step in range(12):
        crew.train(1)
        schedule.step()
        assert crew.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.1 * 0.9 ** (step + 1))


@pytest.mark.parametrize("moments", ["carry", "reset"])
def test_moments_are_carried_over_or_reset(moments: str) -> None:
    crew = ranks(make=adam, moments=moments).train(3)
    state = crew.optimizers[0].state
    assert (entry(crew).a in state) == (moments == "carry")
    assert crew.models[0][0].weight in state, "the state of unfactored parameters is kept"  # type: ignore[index]
    crew.train(4)
    assert entry(crew).rank is None
    assert (entry(crew).weight in state) == (moments == "carry")
    assert entry(crew).a not in state


def test_keeping_old_losses_does_not_break_factoring() -> None:
    """An autograd graph keeps nodes for gradients of the previous shapes."""
    crew = ranks(2, full=0, after=1, every=2, cutoff=0.5)
    kept = []
    for step in range(8):
        losses = [loss_of(m, step, rank) for rank, m in enumerate(crew.models)]
        kept.append(losses)
        for optimizer, loss in zip(crew.optimizers, losses, strict=True):
            optimizer.zero_grad()
            loss.backward(retain_graph=True)
        crew.reference.before_update()
        for optimizer in crew.optimizers:
            optimizer.step()
        crew.reference.after_update()
    assert all(x.isfinite().all() for x in weights(crew))


@pytest.mark.parametrize(
    "make",
    [
        lambda m: torch.optim.Adadelta(m.parameters()),
        lambda m: torch.optim.Adafactor(m.parameters(), lr=0.01),
        lambda m: torch.optim.Adagrad(m.parameters(), lr=0.01),
        lambda m: torch.optim.Adamax(m.parameters(), lr=0.01),
        lambda m: torch.optim.NAdam(m.parameters(), lr=0.01),
        lambda m: torch.optim.RAdam(m.parameters(), lr=0.01),
        lambda m: torch.optim.RMSprop(m.parameters(), lr=0.01, momentum=0.9),
        lambda m: torch.optim.Rprop(m.parameters(), lr=0.01),
        lambda m: AdamW(m.parameters(), lr=0.01, amsgrad=True),
        lambda m: SGD(m.parameters(), lr=0.1, momentum=0.9, nesterov=True),
    ],
)
def test_any_torch_optimizer_works_in_all_phases(make: Callable[[nn.Module], Optimizer]) -> None:
    crew = ranks(make=make, cutoff=0.4).train(13)
    assert all(x.isfinite().all() for x in weights(crew))
    assert entry(crew).rank is None
    assert crew.max_difference() == 0


# --- checkpoints


@pytest.mark.parametrize("at", range(1, 12))
def test_resuming_from_a_checkpoint_of_any_phase_gives_the_same_bits(at: int) -> None:
    settings = {"make": adam, "rebound": 2, "reducer": Quantize(8), "cutoff": 0.3}
    first = ranks(**settings).train(at)
    file = io.BytesIO()
    torch.save(
        [
            (m.state_dict(), o.state_dict(), plain(s))
            for m, o, s in zip(first.models, first.optimizers, first.reference.states, strict=True)
        ],
        file,
    )
    file.seek(0)
    second = ranks(**settings)
    for rank, (model_state, optimizer_state, state) in enumerate(torch.load(file, weights_only=True)):
        second.models[rank].load_state_dict(model_state)
        second.optimizers[rank].load_state_dict(optimizer_state)
        second.reference.states[rank] = restored(strategy(second).init(second.replicas[rank]), state)
    second.step = at
    for crew in (first, second):
        crew.train(7)
    for rank in range(4):
        expected, resumed = first.parameters(rank), second.parameters(rank)
        assert all(same_bits(x, resumed[name]) for name, x in expected.items())
    assert same_states(first.reference.states, second.reference.states)


# --- bytes, training and errors


def test_payload_bytes_are_those_of_the_factors() -> None:
    crew = ranks(cutoff=0.6, after=2, every=20, full=1).train(2)
    rank, before = entry(crew).rank, dict(crew.reference.meters[0].payload_by_unit)
    crew.train(5)
    payload = crew.reference.meters[0].payload_by_unit
    rest = sum(p.nbytes for n, p in crew.parameters().items() if n not in ("3.weight", "3.factor_a", "3.factor_b"))
    flags = 4 + 1  # a size, and a bit for each of 8 parameters that got a gradient
    assert payload[FACTORS] == 5 * (4 * 10 * rank + rest + flags)
    assert payload[WEIGHTS] == before[WEIGHTS] == 2 * (sum(p.nbytes for p in deep().parameters()) + flags)
    assert payload[SYNC] == 8 + 4 * rank * (10 + 12), "one rank sends the factors and their rank"


def test_training_lowers_the_loss() -> None:
    crew = ranks(after=20, every=20, full=5, rebound=3, cutoff=0.2).train(100)
    mean = deep()
    mean.load_state_dict(crew.reference.consensus([dict(m.named_buffers()) for m in crew.models]).means, strict=False)
    initial = sum(loss_of(deep(), 5000 + i, 0).item() for i in range(10)) / 10
    assert sum(loss_of(mean, 5000 + i, 0).item() for i in range(10)) / 10 < initial - 0.5


def test_non_finite_weights_raise_an_error_that_names_them() -> None:
    crew = ranks().train(2)
    for m in crew.models:
        m[3].weight.data[0, 0] = torch.inf  # type: ignore[index,union-attr]
    crew.reference.before_update()
    with pytest.raises(NonFiniteError, match=r"the parameters of 3\.weight"):
        crew.reference.after_update()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"after": -1}, "takes after of 0 steps or more, not -1"),
        ({"every": 0}, "takes every of 1 steps or more, not 0"),
        ({"every": 5, "full": 5}, "full=5 full-rank steps of every=5 steps leave none for factors"),
        ({"cutoff": 1.0}, "a cutoff from 0 to below 1, not 1.0"),
        ({"sync": "all"}, "'only-learned', 'with-stale', 'full', 'only-b', not 'all'"),
        ({"groups": 4}, r"groups such as GroupsOf\(4\) or ByHost\(\), not 4"),
        ({"keep": "head"}, r"patterns such as \('head.\*',\), not 'head'"),
        ({"moments": "keep"}, "'carry' or 'reset', not 'keep'"),
        ({"rebound": 1.5}, "takes rebound of 0 steps or more, not 1.5"),
        ({"reducer": 4}, "a codec or a reducer is needed here, not 4"),
    ],
)
def test_an_invalid_setting_is_an_error(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        ABTraining(**settings)
