"""PowerSGD, with a test for each known pitfall of published versions."""

import io
from functools import cache

import pytest
import torch
from torch import Tensor, nn

from thinwire import Average, Cast, DataParallel, ErrorFeedback, PowerIteration, PowerSGD, RandomK
from thinwire.core.lazy import materialize
from thinwire.core.states import plain, restored
from thinwire.extend import Reducer, Strategy, all_ranks, lockstep
from thinwire.lab.tasks.models import named
from thinwire.simulate import Simulated, replica_of

from ..helpers import by_rank, exchange_gradients, parameter, random, same_bits, started, step


def low_rank(rows: int, columns: int, rank: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """A matrix of this rank, up to the rounding of its dtype."""
    left, right = (
        random(*shape, seed=seed + i, dtype=torch.float64) for i, shape in enumerate([(rows, rank), (rank, columns)])
    )
    return (left @ right).to(dtype)


def distance(x: Tensor, target: Tensor) -> float:
    """The squared norm of the difference, relative to the target's."""
    return float((x.double() - target.double()).square().sum() / target.double().square().sum())


def repeated(reducer: Reducer, targets: list[Tensor], steps: int) -> list[Tensor]:
    """The reduced tensor of every step, when the ranks send the same matrices in every step."""
    specialized, states = started(reducer, targets[0], len(targets))
    reduced = []
    for _ in range(steps):
        result = step(specialized, targets, states)
        states = result.states
        reduced.append(result.reduced.clone())
    return reduced


def trained(strategy: Strategy, targets: dict[str, Tensor], steps: int) -> dict[str, Tensor]:
    """A model's reduced gradients in the last of some steps on one rank."""
    model = nn.ParameterDict({name: nn.Parameter(torch.zeros_like(x)) for name, x in targets.items()})
    replica = replica_of(model)
    state = strategy.init(replica)
    for _ in range(steps):
        for name, p in replica.parameters.items():
            p.grad = targets[name].clone()
        (result,) = Simulated(1).run([strategy.before_update(replica, state)])
        state = result.state
    return {name: p.grad for name, p in replica.parameters.items() if p.grad is not None}


@pytest.mark.parametrize("layers", [1, 4, 16])
@pytest.mark.parametrize("reducer", [PowerSGD(1), ErrorFeedback(PowerSGD(1))], ids=repr)
def test_equal_shaped_layers_are_orthonormalized_separately(reducer: Reducer, layers: int) -> None:
    # Normalized as a batch, 4 such layers keep 0.56 of the squared error after 6 steps, and 16 keep 0.86.
    targets = {f"layer{i}": low_rank(12, 20, 1, seed=2 * i) for i in range(layers)}
    reduced = trained(DataParallel(reducer), targets, steps=6)
    assert max(distance(reduced[name], target) for name, target in targets.items()) < 1e-8


@pytest.mark.parametrize(
    ("shape", "ratio"),
    [((512, 512, 3, 3), 115.2), ((64, 3, 3, 3), 4.747), ((512, 256, 1, 1), 42.67), ((10, 512), 2.452)],
)
def test_least_ratio_is_compared_with_the_ratio_of_the_matrix(shape: tuple[int, ...], ratio: float) -> None:
    # By the unflattened shape of a convolution, the first three ratios would be 763, 7.9 and 170.
    described = parameter(torch.empty(shape, device="meta"))
    below, above = PowerSGD(4, least_ratio=ratio - 0.01), PowerSGD(4, least_ratio=ratio + 0.01)
    assert below.specialize(described) == below
    assert above.specialize(described) == Average()


@pytest.mark.parametrize("shape", [(), (7,), (500,), (1, 500), (500, 1), (0, 5), (5, 0), (2, 3)])
def test_tensors_that_factors_would_not_make_smaller_are_sent_uncompressed(shape: tuple[int, ...]) -> None:
    assert PowerSGD(1).specialize(parameter(torch.empty(shape, device="meta"))) == Average()


@pytest.mark.parametrize("feedback", [True, False])
def test_the_residual_survives_zero_grad(feedback: bool) -> None:
    # In p.grad, it would be erased by zero_grad() and affected by gradient clipping.
    target = random(12, 20)
    model = nn.ParameterDict({"weight": nn.Parameter(torch.zeros(12, 20))})
    strategy = DataParallel(ErrorFeedback(PowerSGD(1)) if feedback else PowerSGD(1))
    replica = replica_of(model)
    state, total = strategy.init(replica), torch.zeros(12, 20)
    for _ in range(60):
        model.zero_grad(set_to_none=True)
        model["weight"].grad = target.clone()
        (result,) = Simulated(1).run([strategy.before_update(replica, state)])
        state = result.state
        total += model["weight"].grad
    # With error feedback all of it is sent eventually; without, only the first factor.
    assert (distance(total / 60, target) < 0.02) == feedback


def test_the_gradient_contains_no_residual() -> None:
    target = random(12, 20)
    reduced = trained(DataParallel(ErrorFeedback(PowerSGD(1))), {"weight": target}, steps=1)["weight"]
    assert torch.linalg.matrix_rank(reduced) == 1


def test_a_parameter_without_gradient_on_any_rank_stays_without() -> None:
    replica = replica_of(nn.Linear(20, 12))
    strategy = DataParallel(ErrorFeedback(PowerSGD(2)))
    Simulated(1).run([strategy.before_update(replica, strategy.init(replica))])
    assert all(p.grad is None for p in replica.parameters.values()), "unused on all ranks"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_low_rank_matrices_of_all_dtypes_are_recovered(dtype: torch.dtype) -> None:
    target = low_rank(12, 20, 2, dtype=dtype)
    reduced = repeated(PowerSGD(2), [target, target], 3)[-1]
    assert reduced.dtype == dtype
    assert distance(reduced, target) < {torch.float64: 1e-20, torch.float16: 1e-5, torch.bfloat16: 1e-3}[dtype]


@pytest.mark.parametrize("rank", [1, 3])
def test_after_zero_gradients_a_low_rank_matrix_is_recovered(rank: int) -> None:
    target = low_rank(12, 20, 1)
    specialized, states = started(ErrorFeedback(PowerSGD(rank)), target, 2)
    for _ in range(3):
        result = step(specialized, [torch.zeros(12, 20)] * 2, states)
        states = result.states
        assert not result.reduced.any()
    for _ in range(6):
        result = step(specialized, [target] * 2, states)
        states = result.states
        assert result.reduced.isfinite().all()
    assert distance(result.reduced, target) < 1e-8


@pytest.mark.parametrize("reducer", [PowerSGD(1), PowerSGD(4), PowerIteration(1), PowerIteration(4)], ids=repr)
def test_a_zero_gradient_does_not_stop_a_layer_with_dead_units(reducer: Reducer) -> None:
    # A zero factor is orthonormalized to the first unit vectors, which select the rows and columns that are dead here.
    target = low_rank(24, 40, 1)
    target[:6] = 0
    target[:, :6] = 0
    specialized, states = started(ErrorFeedback(reducer), target, 2)
    states = step(specialized, [torch.zeros_like(target)] * 2, states).states
    total = torch.zeros_like(target)
    for _ in range(8):
        result = step(specialized, [target] * 2, states)
        states = result.states
        total += result.reduced
    assert distance(total / 8, target) < 1e-6


@pytest.mark.parametrize("size", [1e-5, 1.0, 1e3], ids=str)
def test_factors_in_16_bits_do_not_depend_on_the_scale_of_the_gradient(size: float) -> None:
    target = low_rank(24, 40, 2) * size
    reduced = repeated(PowerSGD(2, codec=Cast("float16")), [target, target], 4)[-1]
    assert distance(reduced, target) < 1e-5


def test_large_gradients_do_not_overflow() -> None:
    target = low_rank(24, 40, 2) * 1e18
    reduced = repeated(PowerSGD(2), [target, target], 4)[-1]
    assert distance(reduced.double(), target.double()) < 1e-8


@pytest.mark.parametrize("rank", [2, 4, 8])
def test_a_rank_above_that_of_the_matrix_gives_no_nan(rank: int) -> None:
    # All columns of the factor but one vanish.
    for target in (low_rank(12, 20, 1), torch.ones(12, 20), torch.eye(12, 20)[:, :1].expand(12, 20)):
        for reduced in repeated(PowerSGD(rank, least_ratio=1), [target], 4):
            assert distance(reduced, target) < 1e-8


@pytest.mark.parametrize("shape", [(3, 20), (20, 3), (1, 20), (20, 1), (5, 5)])
def test_a_rank_above_the_dimensions_is_reduced_and_lossless(shape: tuple[int, int]) -> None:
    reducer, target = PowerSGD(50), random(*shape)
    state = reducer.init(target, 0)
    for _ in range(2):
        result = step(reducer, [target], [state])
        (state,) = result.states
        assert {min(message.tensor.shape) for message in result.messages[0]} == {min(shape)}
        assert distance(result.reduced, target) < 1e-8


def test_the_initial_factor_depends_on_the_seed_only() -> None:
    like = torch.zeros(12, 20)
    first, same, other = (PowerSGD(2).init(like, seed) for seed in (1, 1, 2))
    assert same_bits(first, same)
    assert not same_bits(first, other)


@pytest.mark.parametrize("decay", [1.0, 0.9])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_warm_start_survives_a_checkpoint(steps: int, decay: float) -> None:
    # The residual is computed in the next step only; a checkpoint must compute it when it is saved.
    targets = by_rank(2, 12, 20)
    specialized, states = started(ErrorFeedback(PowerSGD(2), decay=decay), targets[0], 2)
    for _ in range(steps):
        states = step(specialized, targets, states).states
    file = io.BytesIO()
    torch.save([plain(state) for state in states], file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    copies = [restored(specialized.init(x, 7), state) for x, state in zip(targets, saved, strict=True)]
    assert same_bits(step(specialized, targets, copies).reduced, step(specialized, targets, states).reduced)


@pytest.mark.parametrize("ranks", [2, 5])
def test_several_ranks_equal_one_rank_with_the_mean(ranks: int) -> None:
    targets = [x.double() for x in by_rank(ranks, 12, 20)]
    several, single = (repeated(PowerSGD(2), xs, 4) for xs in (targets, [torch.stack(targets).mean(0)]))
    for ours, theirs in zip(several, single, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_mean_of_the_same_rank_is_recovered_in_one_step() -> None:
    targets = [low_rank(12, 20, 1, seed=seed) for seed in (0, 10)]
    (reduced,) = repeated(PowerSGD(2), targets, 1)
    assert distance(reduced, torch.stack(targets).mean(0)) < 1e-8


def test_repeated_steps_converge_to_the_best_low_rank_approximation() -> None:
    target = random(12, 20)
    u, s, v = torch.linalg.svd(target, full_matrices=False)
    best = u[:, :2] * s[:2] @ v[:2]
    found = repeated(PowerSGD(2), [target], 200)[-1]
    assert distance(found, target) <= distance(best, target) * (1 + 1e-4)


@pytest.mark.parametrize("rank", [1, 2])
def test_with_error_feedback_the_mean_of_results_converges_to_a_constant_matrix(rank: int) -> None:
    targets = by_rank(2, 12, 20)
    mean = torch.stack(targets).mean(0)
    reduced = torch.stack(repeated(ErrorFeedback(PowerSGD(rank)), targets, 200))
    early, late = (distance(reduced[:steps].mean(0), mean) for steps in (50, 200))
    # The residual is bounded, so four times the steps divide the squared error by almost sixteen.
    assert late < early / 8
    assert late < 0.01


@pytest.mark.parametrize("rank", [2, 12])
def test_a_matrix_gives_the_same_bits_alone_and_with_others_in_its_round(rank: int) -> None:
    # Which others share its round depends on DDP's buckets.
    def run(shapes: list[tuple[int, int]]) -> list[Tensor]:
        xs = [random(*shape, seed=7 * shape[0]) for shape in shapes]
        reducer = ErrorFeedback(PowerSGD(rank))
        states = [reducer.init(x, 0) for x in xs]
        for _ in range(3):
            exchange = lockstep((all_ranks(1), reducer.reduce(x, state)) for x, state in zip(xs, states, strict=True))
            (results,) = Simulated(1).run([exchange])
            states = [state for _, state in results]
        return [materialize(reply.reduced) for reply, _ in results]

    alone = run([(24, 40)])[0]
    for others in ([(9, 27)], [(7, 5)], [(9, 27), (11, 13)]):
        assert same_bits(run([*others, (24, 40)])[-1], alone)


def test_the_codec_of_the_factors_gets_new_seeds_in_every_step() -> None:
    # With one seed for all steps, the entries that it drops would never be sent.
    target = random(12, 20)
    specialized, states = started(ErrorFeedback(PowerSGD(1, codec=RandomK(0.5))), target, 1)
    seeds = []
    for _ in range(3):
        result = step(specialized, [target], states)
        states = result.states
        seeds.append({message.seed for message in result.messages[0]})
    assert not seeds[0] & seeds[1]
    assert not seeds[1] & seeds[2]


@cache
def resnet18() -> nn.Module:
    return named("resnet18").build()


@pytest.mark.parametrize(("rank", "floats"), [(1, 45_935), (2, 82_260), (4, 154_910)])
def test_a_step_of_resnet18_sends_the_published_number_of_floats(rank: int, floats: int) -> None:
    transport, replica = Simulated(1), replica_of(resnet18())
    strategy = DataParallel(PowerSGD(rank))
    transport.run([exchange_gradients(strategy, replica, strategy.init(replica))])
    assert transport.meters[0].payload_bytes == 4 * floats
    assert transport.meters[0].rounds == 2


def test_16_bit_factors_take_half_the_bytes() -> None:
    target = random(12, 20)
    in_32_bits, in_16_bits = (
        step(reducer, [target], [reducer.init(target, 0)]).meters[0].payload_bytes
        for reducer in (PowerSGD(2), PowerSGD(2, codec=Cast("float16")))
    )
    assert (in_32_bits, in_16_bits) == (4 * 2 * 32, 2 * 2 * 32)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"rank": 0}, "rank of 1 or more, not 0"),
        ({"rank": 1.5}, "rank of 1 or more, not 1.5"),
        ({"rank": 1, "least_ratio": 0.5}, "least_ratio of 1 or more, not 0.5"),
        ({"rank": 1, "codec": Average()}, "takes a codec, not"),
    ],
)
def test_an_invalid_setting_is_an_error(arguments: dict[str, object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        PowerSGD(**arguments)  # type: ignore[arg-type]
