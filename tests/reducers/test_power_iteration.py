"""The alternating form of PowerSGD, with a test for each known pitfall of its published version."""

import io
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from thinwire import Average, DataParallel, ErrorFeedback, PowerIteration, RandomK
from thinwire.core.states import plain, restored
from thinwire.simulate import Simulated, replica_of

from ..helpers import by_rank, exchange_gradients, parameter, random, same_bits, started, step
from .test_power_sgd import distance, low_rank, repeated, resnet18, trained


@pytest.mark.parametrize("layers", [1, 4, 16])
@pytest.mark.parametrize("iterations", [1, 2])
def test_equal_shaped_layers_are_orthonormalized_separately(layers: int, iterations: int) -> None:
    targets = {f"layer{i}": low_rank(12, 20, 1, seed=2 * i) for i in range(layers)}
    reduced = trained(DataParallel(PowerIteration(1, iterations=iterations)), targets, steps=6)
    assert max(distance(reduced[name], target) for name, target in targets.items()) < 1e-8


@pytest.mark.parametrize(
    ("shape", "ratio"), [((512, 512, 3, 3), 115.2), ((64, 3, 3, 3), 4.747), ((512, 256, 1, 1), 42.67)]
)
def test_least_ratio_is_compared_with_the_ratio_of_the_matrix(shape: tuple[int, ...], ratio: float) -> None:
    described = parameter(torch.empty(shape, device="meta"))
    below, above = PowerIteration(4, least_ratio=ratio - 0.01), PowerIteration(4, least_ratio=ratio + 0.01)
    assert below.specialize(described) == below
    assert above.specialize(described) == Average()


def test_left_and_right_factors_alternate() -> None:
    reducer, x = PowerIteration(2), random(12, 20)
    state = reducer.init(x, 0)
    sizes = []
    for _ in range(4):
        result = step(reducer, [x], [state])
        (state,) = result.states
        sizes += [message.tensor.numel() for message in result.messages[0]]
    assert sizes == [2 * 12, 2 * 20, 2 * 12, 2 * 20]


@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("shape", [(12, 20), (16, 16)])
def test_the_turn_of_the_factors_survives_a_checkpoint(shape: tuple[int, int], steps: int) -> None:
    # Also for square matrices, where the wrong turn would give no error.
    targets = by_rank(2, *shape)
    specialized, states = started(ErrorFeedback(PowerIteration(2)), targets[0], 2)
    for _ in range(steps):
        states = step(specialized, targets, states).states
    file = io.BytesIO()
    torch.save([plain(state) for state in states], file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    copies = [restored(specialized.init(x, 7), state) for x, state in zip(targets, saved, strict=True)]
    assert same_bits(step(specialized, targets, copies).reduced, step(specialized, targets, states).reduced)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_low_rank_matrices_of_all_dtypes_are_recovered(dtype: torch.dtype) -> None:
    target = low_rank(12, 20, 2, dtype=dtype)
    reduced = repeated(PowerIteration(2), [target, target], 6)[-1]
    assert reduced.dtype == dtype
    assert distance(reduced, target) < {torch.float64: 1e-20, torch.float16: 1e-5, torch.bfloat16: 1e-3}[dtype]


@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_after_zero_gradients_a_low_rank_matrix_is_recovered(iterations: int) -> None:
    target = low_rank(12, 20, 1)
    specialized, states = started(PowerIteration(1, iterations=iterations), target, 2)
    for matrix in (torch.zeros(12, 20), target):
        for _ in range(6):
            result = step(specialized, [matrix] * 2, states)
            states = result.states
        assert result.reduced.isfinite().all()
        torch.testing.assert_close(result.reduced, matrix, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rank", [2, 4, 8])
def test_a_rank_above_that_of_the_matrix_gives_no_nan(rank: int) -> None:
    for target in (low_rank(12, 20, 1), torch.ones(12, 20)):
        assert distance(repeated(PowerIteration(rank, iterations=2), [target], 4)[-1], target) < 1e-8


@pytest.mark.parametrize("shape", [(3, 20), (20, 3), (1, 20), (20, 1), (5, 5)])
def test_a_rank_above_the_dimensions_is_reduced_and_lossless(shape: tuple[int, int]) -> None:
    reducer, target = PowerIteration(50), random(*shape)
    state = reducer.init(target, 0)
    for _ in range(3):
        result = step(reducer, [target], [state])
        (state,) = result.states
        assert {min(message.tensor.shape) for message in result.messages[0]} == {min(shape)}
    assert distance(result.reduced, target) < 1e-8


@pytest.mark.parametrize("iterations", [1, 2])
def test_several_ranks_equal_one_rank_with_the_mean(iterations: int) -> None:
    targets = [x.double() for x in by_rank(3, 12, 20)]
    reducer = PowerIteration(2, iterations=iterations)
    several, single = (repeated(reducer, xs, 4) for xs in (targets, [torch.stack(targets).mean(0)]))
    for ours, theirs in zip(several, single, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_more_iterations_per_step_reduce_the_error() -> None:
    target = random(12, 20)

    def error(iterations: int) -> float:
        return distance(repeated(PowerIteration(1, iterations=iterations), [target], 10)[-1], target)

    errors = [error(iterations) for iterations in (1, 2, 4, 8)]
    assert all(more < fewer for fewer, more in pairwise(errors))


@pytest.mark.parametrize("reducer", [PowerIteration(1), PowerIteration(2), PowerIteration(1, iterations=2)], ids=repr)
def test_with_error_feedback_the_mean_of_results_converges_to_a_constant_matrix(reducer: PowerIteration) -> None:
    targets = by_rank(2, 12, 20)
    mean = torch.stack(targets).mean(0)
    reduced = torch.stack(repeated(ErrorFeedback(reducer), targets, 200))
    early, late = (distance(reduced[:steps].mean(0), mean) for steps in (50, 200))
    assert late < early / 8
    assert late < 0.01


def test_the_codec_of_the_factors_gets_new_seeds_in_every_step() -> None:
    target = random(12, 20)
    specialized, states = started(ErrorFeedback(PowerIteration(1, codec=RandomK(0.5))), target, 1)
    seeds: list[set[int]] = []
    for _ in range(3):
        result = step(specialized, [target], states)
        states = result.states
        seeds.append({message.seed for message in result.messages[0]})
    assert not seeds[0] & seeds[1]
    assert not seeds[1] & seeds[2]


def test_two_steps_of_resnet18_send_the_bytes_of_one_step_of_powersgd() -> None:
    transport, replica = Simulated(1), replica_of(resnet18())
    strategy = DataParallel(PowerIteration(1))
    state = strategy.init(replica)
    for _ in range(2):
        (result,) = transport.run([exchange_gradients(strategy, replica, state)])
        state = result.state
    vectors = 9_610  # floats of biases and norms, which are sent uncompressed in every step
    assert transport.meters[0].payload_bytes == 4 * (45_935 + vectors)
    assert transport.meters[0].rounds == 2


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"rank": 0}, "PowerIteration takes a rank of 1 or more, not 0"),
        ({"rank": 1, "iterations": 0}, "1 iteration or more, not 0"),
        ({"rank": 1, "least_ratio": 0.5}, "least_ratio of 1 or more"),
        ({"rank": 1, "codec": "fp16"}, "takes a codec, not 'fp16'"),
    ],
)
def test_an_invalid_setting_is_an_error(arguments: dict[str, object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        PowerIteration(**arguments)  # type: ignore[arg-type]


def test_the_mean_of_the_sent_tensors_is_the_result() -> None:
    targets = by_rank(3, 12, 20)
    specialized, states = started(PowerIteration(2, iterations=2), targets[0], 3)
    for _ in range(3):
        result = step(specialized, targets, states)
        states = result.states
        sent: Tensor = torch.stack([reply.sent for reply in result.replies]).mean(0)
        torch.testing.assert_close(result.reduced, sent, rtol=1e-4, atol=1e-5)
