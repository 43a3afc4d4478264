"""PowerSGD's alternating form, with a test for each pitfall that its published version is known for."""

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
def test_equal_shaped_layers_are_normalised_one_by_one(layers: int, iterations: int) -> None:
    targets = {f"layer{i}": low_rank(12, 20, 1, seed=2 * i) for i in range(layers)}
    reduced = trained(DataParallel(PowerIteration(1, iterations=iterations)), targets, steps=6)
    assert max(distance(reduced[name], target) for name, target in targets.items()) < 1e-8


@pytest.mark.parametrize(
    ("shape", "ratio"), [((512, 512, 3, 3), 115.2), ((64, 3, 3, 3), 4.747), ((512, 256, 1, 1), 42.67)]
)
def test_the_least_ratio_is_judged_on_the_matrix(shape: tuple[int, ...], ratio: float) -> None:
    told = parameter(torch.empty(shape, device="meta"))
    below, above = PowerIteration(4, least_ratio=ratio - 0.01), PowerIteration(4, least_ratio=ratio + 0.01)
    assert below.specialize(told) == below
    assert above.specialize(told) == Average()


def test_left_and_right_factors_take_turns() -> None:
    reducer, x = PowerIteration(2), random(12, 20)
    state = reducer.init(x, 0)
    said = []
    for _ in range(4):
        held = step(reducer, [x], [state])
        (state,) = held.states
        said += [message.tensor.numel() for message in held.messages[0]]
    assert said == [2 * 12, 2 * 20, 2 * 12, 2 * 20]


@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("shape", [(12, 20), (16, 16)])
def test_whose_turn_it_is_survives_a_checkpoint(shape: tuple[int, int], steps: int) -> None:
    # Square matrices too: there the wrong turn would go on without an error.
    targets = by_rank(2, *shape)
    suited, states = started(ErrorFeedback(PowerIteration(2)), targets[0], 2)
    for _ in range(steps):
        states = step(suited, targets, states).states
    file = io.BytesIO()
    torch.save([plain(state) for state in states], file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    copies = [restored(suited.init(x, 7), state) for x, state in zip(targets, saved, strict=True)]
    assert same_bits(step(suited, targets, copies).reduced, step(suited, targets, states).reduced)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_half_and_double_precision_matrices_are_recovered(dtype: torch.dtype) -> None:
    target = low_rank(12, 20, 2, dtype=dtype)
    reduced = repeated(PowerIteration(2), [target, target], 6)[-1]
    assert reduced.dtype == dtype
    assert distance(reduced, target) < {torch.float64: 1e-20, torch.float16: 1e-5, torch.bfloat16: 1e-3}[dtype]


@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_a_zero_matrix_gives_zeros_and_is_recovered_from(iterations: int) -> None:
    target = low_rank(12, 20, 1)
    suited, states = started(PowerIteration(1, iterations=iterations), target, 2)
    for matrix in (torch.zeros(12, 20), target):
        for _ in range(6):
            held = step(suited, [matrix] * 2, states)
            states = held.states
        assert held.reduced.isfinite().all()
        torch.testing.assert_close(held.reduced, matrix, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rank", [2, 4, 8])
def test_columns_that_vanish_give_no_nan(rank: int) -> None:
    for target in (low_rank(12, 20, 1), torch.ones(12, 20)):
        assert distance(repeated(PowerIteration(rank, iterations=2), [target], 4)[-1], target) < 1e-8


@pytest.mark.parametrize("shape", [(3, 20), (20, 3), (1, 20), (20, 1), (5, 5)])
def test_a_rank_beyond_the_matrix_is_cut_to_it_and_loses_nothing(shape: tuple[int, int]) -> None:
    reducer, target = PowerIteration(50), random(*shape)
    state = reducer.init(target, 0)
    for _ in range(3):
        held = step(reducer, [target], [state])
        (state,) = held.states
        assert {min(message.tensor.shape) for message in held.messages[0]} == {min(shape)}
    assert distance(held.reduced, target) < 1e-8


@pytest.mark.parametrize("iterations", [1, 2])
def test_ranks_together_give_what_one_rank_gives_for_their_mean(iterations: int) -> None:
    targets = [x.double() for x in by_rank(3, 12, 20)]
    reducer = PowerIteration(2, iterations=iterations)
    together_, alone = (repeated(reducer, xs, 4) for xs in (targets, [torch.stack(targets).mean(0)]))
    for ours, theirs in zip(together_, alone, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_every_iteration_of_a_step_counts() -> None:
    target = random(12, 20)

    def error(iterations: int) -> float:
        return distance(repeated(PowerIteration(1, iterations=iterations), [target], 10)[-1], target)

    errors = [error(iterations) for iterations in (1, 2, 4, 8)]
    assert all(more < fewer for fewer, more in pairwise(errors))


@pytest.mark.parametrize("reducer", [PowerIteration(1), PowerIteration(2), PowerIteration(1, iterations=2)], ids=repr)
def test_repeated_with_feedback_a_fixed_matrix_is_reconstructed(reducer: PowerIteration) -> None:
    targets = by_rank(2, 12, 20)
    mean = torch.stack(targets).mean(0)
    reduced = torch.stack(repeated(ErrorFeedback(reducer), targets, 200))
    early, late = (distance(reduced[:steps].mean(0), mean) for steps in (50, 200))
    assert late < early / 8
    assert late < 0.01


def test_a_codec_for_the_factors_draws_anew_in_every_step() -> None:
    target = random(12, 20)
    suited, states = started(ErrorFeedback(PowerIteration(1, codec=RandomK(0.5))), target, 1)
    draws: list[set[int]] = []
    for _ in range(3):
        held = step(suited, [target], states)
        states = held.states
        draws.append({message.seed for message in held.messages[0]})
    assert not draws[0] & draws[1]
    assert not draws[1] & draws[2]


def test_two_steps_of_resnet18_say_what_powersgd_says_in_one() -> None:
    transport, replica = Simulated(1), replica_of(resnet18())
    strategy = DataParallel(PowerIteration(1))
    state = strategy.init(replica)
    for _ in range(2):
        (outcome,) = transport.run([exchange_gradients(strategy, replica, state)])
        state = outcome.state
    vectors = 9_610  # floats of biases and norms, which are sent as they are in every step
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
def test_a_wrong_setting_is_refused(arguments: dict[str, object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        PowerIteration(**arguments)  # type: ignore[arg-type]


def test_what_is_said_is_what_the_peers_add_up() -> None:
    targets = by_rank(3, 12, 20)
    suited, states = started(PowerIteration(2, iterations=2), targets[0], 3)
    for _ in range(3):
        held = step(suited, targets, states)
        states = held.states
        sent: Tensor = torch.stack([reply.sent for reply in held.replies]).mean(0)
        torch.testing.assert_close(held.reduced, sent, rtol=1e-4, atol=1e-5)
