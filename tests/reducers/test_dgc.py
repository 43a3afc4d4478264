import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam

from thinwire import DGC, Average, Cast, DataParallel, Identity, inspect
from thinwire.core.states import plain, restored
from thinwire.reducers.dgc import DGCState
from thinwire.simulate import Simulated, replica_of

from ..helpers import by_rank, parameter, random, same_bits, step

SHAPE = (40, 25)
MOMENTUM, DECAY, RATE = 0.9, 0.1, 0.05


class Paper:
    """The paper's algorithm for one tensor and all ranks, on lists of numbers, entry by entry."""

    def __init__(self, ranks: int, size: int, clip: float | None) -> None:
        self.velocities, self.sums = ([[0.0] * size for _ in range(ranks)] for _ in range(2))
        self.clip = clip

    def step(self, gradients: list[list[float]], kept: int) -> list[float]:
        """The mean that all ranks apply; each sends `kept` entries."""
        ranks = len(gradients)
        applied = [0.0] * len(gradients[0])
        for gradient, velocity, total in zip(gradients, self.velocities, self.sums, strict=True):
            factor = 1.0
            if self.clip is not None:
                norm = math.sqrt(sum(entry * entry for entry in gradient))
                # The paper divides gradients by the world size first, and clips to the norm divided by its square root.
                factor = min(1.0, self.clip * ranks**-0.5 / (norm / ranks))
            for i, entry in enumerate(gradient):
                velocity[i] = MOMENTUM * velocity[i] + factor * entry
                total[i] = total[i] + velocity[i]
            by_size = sorted(range(len(total)), key=lambda i: abs(total[i]), reverse=True)
            for i in by_size[:kept]:
                applied[i] += total[i] / ranks
                velocity[i] = total[i] = 0.0
        return applied


def gradients_at(step: int, ranks: int, weight: Tensor) -> list[Tensor]:
    """Gradients towards a different target on every rank, with noise."""
    targets = by_rank(ranks, *SHAPE, seed=99, dtype=torch.float64)
    noise = by_rank(ranks, *SHAPE, seed=step, dtype=torch.float64)
    return [0.5 * (weight - target) + 0.3 * deviation for target, deviation in zip(targets, noise, strict=True)]


class Training:
    """Ranks that train one matrix in 64 bits, each with its own optimizer."""

    def __init__(self, reducer: DGC, ranks: int, optimizer: Any, **settings: Any) -> None:
        self.ranks, self.strategy = ranks, DataParallel(reducer)
        self.models = [nn.Linear(SHAPE[1], SHAPE[0], bias=False, dtype=torch.float64) for _ in range(ranks)]
        for model in self.models:
            nn.init.zeros_(model.weight)
        self.replicas = [replica_of(model, rank=rank, size=ranks) for rank, model in enumerate(self.models)]
        self.optimizers = [optimizer(model.parameters(), **settings) for model in self.models]
        self.states = [self.strategy.init(replica) for replica in self.replicas]

    @property
    def weight(self) -> Tensor:
        return self.models[0].weight.detach()

    def step(self, gradients: list[Tensor]) -> None:
        for model, gradient in zip(self.models, gradients, strict=True):
            model.weight.grad = gradient.clone()
        exchanges = [self.strategy.before_update(r, s) for r, s in zip(self.replicas, self.states, strict=True)]
        self.states = [result.state for result in Simulated(self.ranks).run(exchanges)]
        for optimizer in self.optimizers:
            optimizer.step()


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({}, [20] * 24),
        ({"clip": 5.0}, [20] * 24),
        ({"ramp_steps": 9}, [250] * 5 + [62] * 4 + [20] * 15),
    ],
    ids=["plain", "clipped", "ramp"],
)
def test_training_equals_the_papers_algorithm_with_the_authors_optimizer(
    ranks: int, settings: dict[str, Any], kept: list[int]
) -> None:
    reducer = DGC(0.02, values=Identity(), **settings)
    training = Training(reducer, ranks, SGD, lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)
    paper = Paper(ranks, 1000, reducer.clip)
    weight, decayed = [0.0] * 1000, [0.0] * 1000
    clipped = 0
    for i, count in enumerate(kept):
        gradients = gradients_at(i, ranks, torch.tensor(weight, dtype=torch.float64).view(SHAPE))
        clipped += sum(float(gradient.norm()) > 5.0 * ranks**0.5 for gradient in gradients)
        applied = paper.step([gradient.flatten().tolist() for gradient in gradients], count)
        # The authors' optimizer applies momentum to the weight decay only.
        decayed = [MOMENTUM * b + DECAY * w for b, w in zip(decayed, weight, strict=True)]
        weight = [w - RATE * (b + d) for w, b, d in zip(weight, decayed, applied, strict=True)]
        training.step(gradients)
        expected = torch.tensor(weight, dtype=torch.float64).view(SHAPE)
        for model in training.models:
            torch.testing.assert_close(model.weight.detach(), expected, rtol=1e-10, atol=1e-12)
    assert clipped == ranks * len(kept), "every gradient must be clipped, or clipping is not tested"


@pytest.mark.parametrize("decay", [0.0, DECAY])
def test_the_optimizers_momentum_buffer_is_the_sent_mean_plus_weight_decay(decay: float) -> None:
    training = Training(DGC(0.02), 2, SGD, lr=RATE, momentum=MOMENTUM, weight_decay=decay)
    decayed = torch.zeros(SHAPE, dtype=torch.float64)
    for i in range(30):
        before = training.weight.clone()
        training.step(gradients_at(i, 2, before))
        decayed = MOMENTUM * decayed + decay * before
        (buffer,) = (state["momentum_buffer"] for state in training.optimizers[0].state.values())
        applied = training.states[0]["weight"].applied
        assert 20 <= applied.count_nonzero() <= 40
        torch.testing.assert_close(buffer, applied + decayed, rtol=1e-12, atol=1e-12)


def test_at_ratio_1_no_momentum_remains() -> None:
    # All velocities are masked, and the optimizer's momentum is taken back.
    training = Training(DGC(1.0, values=Identity()), 2, SGD, lr=RATE, momentum=MOMENTUM)
    weight = nn.Parameter(torch.zeros(SHAPE, dtype=torch.float64))
    plain_sgd = SGD([weight], lr=RATE)
    for i in range(10):
        gradients = gradients_at(i, 2, weight.detach())
        weight.grad = (gradients[0] + gradients[1]) / 2
        plain_sgd.step()
        training.step(gradients)
        torch.testing.assert_close(training.weight, weight.detach(), rtol=1e-12, atol=1e-12)


def test_unsent_entries_accumulate_as_in_sgd_with_momentum() -> None:
    # One entry is so large that only it is sent; all others accumulate.
    reducer = DGC(0.001, values=Identity())
    state = reducer.init(torch.zeros(SHAPE, dtype=torch.float64), 0)
    weight = nn.Parameter(torch.zeros(SHAPE, dtype=torch.float64))
    optimizer = SGD([weight], lr=1.0, momentum=MOMENTUM)
    for i in range(10):
        weight.grad = random(*SHAPE, seed=i, dtype=torch.float64)
        weight.grad[0, 0] = 1000
        (state,) = step(reducer, [weight.grad], [state]).states
        optimizer.step()
    torch.testing.assert_close(state.unsent.flatten()[1:], -weight.detach().flatten()[1:])
    assert state.unsent[0, 0] == 0


def test_sent_entries_are_masked_and_keep_their_rounding_error() -> None:
    xs = by_rank(3, *SHAPE)
    reducer = DGC(0.1)
    result = step(reducer, xs, [reducer.init(x, 0) for x in xs])
    for x, reply, state in zip(xs, result.replies, result.states, strict=True):
        sent = reply.sent != 0
        assert sent.sum() == 100
        assert (state.velocity[sent] == 0).all()
        assert same_bits(state.velocity[~sent], x[~sent])
        assert same_bits(state.unsent, x - x.half().float() * sent)
        assert 0 < state.unsent[sent].abs().max() < 2e-3, "the rounding error of 11 bits"


def test_entries_that_round_to_zero_count_as_not_sent() -> None:
    reducer = DGC(1.0, values=Cast("float16"))
    x = torch.tensor([[1.0, 1e-9]])
    result = step(reducer, [x], [reducer.init(x, 0)])
    (state,) = result.states
    assert result.replies[0].sent.tolist() == [[1.0, 0.0]]
    assert same_bits(state.velocity, torch.tensor([[0.0, 1e-9]]))
    assert same_bits(state.unsent, torch.tensor([[0.0, 1e-9]]))


@pytest.mark.parametrize(("ranks", "norm"), [(1, 3.0), (4, 6.0), (9, 9.0)])
def test_gradients_are_clipped_by_the_norm_times_the_root_of_the_world_size(ranks: int, norm: float) -> None:
    replica = replica_of(nn.Linear(SHAPE[1], SHAPE[0], bias=False), size=ranks)
    ((_, reducer, _),) = DataParallel(DGC(1.0, clip=3.0)).units(replica)
    assert reducer == DGC(1.0, clip=3.0, ranks=ranks)
    x = random(*SHAPE)
    sent = next(reducer.reduce(x, reducer.init(x, 0))).tensor.dense()
    torch.testing.assert_close(sent, x * (norm / x.double().norm()).float())
    small = x / 100
    assert small.norm() < norm
    assert same_bits(next(reducer.reduce(small, reducer.init(x, 0))).tensor.dense(), small)


def test_given_ranks_are_not_replaced() -> None:
    assert DGC(clip=3.0, ranks=16).specialize(parameter(torch.zeros(SHAPE))) == DGC(clip=3.0, ranks=16)


def test_a_norm_that_overflows_32_bits_is_clipped() -> None:
    x = random(*SHAPE) * 1e25
    assert x.norm().isinf()
    reducer = DGC(1.0, clip=3.0)
    assert float(next(reducer.reduce(x, reducer.init(x, 0))).tensor.dense().norm()) == pytest.approx(3.0)


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_clipping_keeps_non_finite_values(wrong: float) -> None:
    x = random(*SHAPE)
    x[3, 4] = wrong
    reducer = DGC(1.0, clip=3.0)
    assert not next(reducer.reduce(x, reducer.init(x, 0))).tensor.dense().isfinite().all()


def test_clipping_zeros_gives_zeros() -> None:
    x = torch.zeros(SHAPE)
    reducer = DGC(1.0, clip=3.0)
    assert same_bits(next(reducer.reduce(x, reducer.init(x, 0))).tensor.dense(), x)


def counts_sent(reducer: DGC, state: DGCState, steps: int) -> tuple[list[int], DGCState]:
    """The number of entries, of 1,000, sent in each step."""
    counts = []
    for i in range(steps):
        result = step(reducer, by_rank(1, *SHAPE, seed=i), [state])
        (state,) = result.states
        counts.append(int(result.replies[0].sent.count_nonzero()))
    return counts, state


@pytest.mark.parametrize(
    ("ratio", "ramp_steps", "counts"),
    [
        (0.001, 0, [1, 1]),
        (0.001, 8, [250, 250, 62, 62, 16, 16, 4, 4, 1, 1, 1]),
        (0.001, 6, [250, 250, 62, 16, 16, 4, 1, 1]),
        (0.001, 2, [250, 16, 1, 1]),
        (0.001, 1, [250, 1, 1]),
        (0.01, 6, [250, 250, 62, 62, 16, 16, 10, 10]),
        (0.0625, 2, [250, 250, 62, 62]),
    ],
)
def test_the_ramp_falls_to_the_ratio_in_stages_of_equal_length(
    ratio: float, ramp_steps: int, counts: list[int]
) -> None:
    reducer = DGC(ratio, ramp_steps=ramp_steps)
    sent, state = counts_sent(reducer, reducer.init(torch.zeros(SHAPE), 0), len(counts))
    assert sent == counts
    assert state.step == ramp_steps, "steps are not counted after the ramp"


def test_a_checkpoint_resumes_within_the_ramp() -> None:
    reducer = DGC(ramp_steps=8)
    counts, state = counts_sent(reducer, reducer.init(torch.zeros(SHAPE), 0), 3)
    copy = restored(reducer.init(torch.zeros(SHAPE), 0), plain(state))
    uninterrupted, end = counts_sent(reducer, state, 7)
    resumed, end_of_copy = counts_sent(reducer, copy, 7)
    assert counts + resumed == counts + uninterrupted == [250, 250, 62, 62, 16, 16, 4, 4, 1, 1]
    assert same_bits(plain(end_of_copy), plain(end))


def test_with_outside_0_the_result_is_the_mean_of_the_sent_tensors() -> None:
    training = Training(DGC(0.02, outside=0.0), 2, Adam, lr=RATE)
    assert training.states[0]["weight"].applied is None
    reducer = training.strategy.reducer
    states = [reducer.init(training.weight, 0) for _ in range(2)]
    weight = nn.Parameter(torch.zeros(SHAPE, dtype=torch.float64))
    optimizer = Adam([weight], lr=RATE)
    for i in range(5):
        gradients = gradients_at(i, 2, weight.detach())
        result = step(reducer, gradients, states)
        states = result.states
        assert same_bits(result.reduced, (result.replies[0].sent + result.replies[1].sent) * 0.5)
        weight.grad = result.reduced
        optimizer.step()
        training.step(gradients)
        assert same_bits(training.weight, weight.detach())


def test_outside_may_differ_from_momentum() -> None:
    reducer = DGC(1.0, momentum=0.5, outside=0.25, values=Identity())
    state = reducer.init(torch.zeros(1, 2), 0)
    reduced = []
    for x in ([[8.0, 0.0]], [[8.0, 8.0]], [[0.0, 0.0]]):
        result = step(reducer, [torch.tensor(x)], [state])
        (state,) = result.states
        reduced.append(result.reduced.tolist())
    assert reduced == [[[8.0, 0.0]], [[6.0, 8.0]], [[-2.0, -2.0]]]


def test_matrices_are_not_fused_and_vectors_are_uncompressed() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))
    units = DataParallel(DGC()).units(replica_of(model, size=2))
    assert [(unit.names, unit.reducer) for unit in units] == [
        (("0.weight",), DGC()),
        (("0.bias", "1.weight", "1.bias", "3.bias"), Average()),
        (("3.weight",), DGC()),
    ]


def test_no_residual_memory_is_allocated_after_the_second_step() -> None:
    reducer = DGC(0.1)
    x = random(*SHAPE)
    state = reducer.init(x, 0)
    addresses = []
    for _ in range(6):
        (state,) = step(reducer, [x], [state]).states
        addresses.append((state.velocity.data_ptr(), state.unsent.data_ptr()))
    assert len(set(addresses)) == 2
    assert len({address for pair in addresses for address in pair}) == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ratio": 0}, "a ratio between 0 and 1 of the entries, not 0"),
        ({"ratio": 1.5}, "not 1.5"),
        ({"momentum": 1.0}, "a momentum of 0 or more and below 1, not 1.0"),
        ({"momentum": -0.1}, "not -0.1"),
        ({"outside": 1.5}, "an outside of 0 or more and below 1, not 1.5"),
        ({"clip": 0}, "a norm above 0, not 0"),
        ({"clip": math.inf}, "not inf"),
        ({"ramp_steps": -1}, "0 steps or more, not -1"),
        ({"ramp_steps": 2.5}, "not 2.5"),
        ({"ratio": 0.25, "ramp_steps": 10}, "begins at a ratio of 0.25, so it cannot end at 0.25"),
        ({"values": "fp16"}, "a codec, not 'fp16'"),
        ({"values": Average()}, r"a codec, not Average\(\)"),
        ({"clip": 1.0, "ranks": 0}, "1 rank or more, not 0"),
        ({"ranks": 4}, r"DGC\(ranks=4\) has no effect without a clip"),
    ],
)
def test_an_invalid_setting_is_an_error(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DGC(**settings)


@pytest.mark.parametrize(
    ("method", "optimizer", "warning"),
    [
        ("dgc", lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), None),
        ("dgc", lambda p: torch.optim.SGD(p, 0.1), r"momentum of 0.9 .* SGD has 0: use DGC\(..., outside=0\)"),
        ("dgc", lambda p: torch.optim.Adam(p), "Adam has 0"),
        ("DGC(outside=0.0)", lambda p: torch.optim.Adam(p), None),
        (
            "Choose(When(DGC(momentum=0.5), min_dim=2))",
            lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
            "momentum of 0.5 .* SGD has 0.9",
        ),
        ("topk", lambda p: torch.optim.Adam(p), None),
    ],
)
def test_an_optimizer_with_another_momentum_is_a_warning(method: str, optimizer: Any, warning: str | None) -> None:
    built = optimizer([nn.Parameter(torch.zeros(3, 3))])
    if warning is None:
        inspect.check_momentum(method, built)  # warnings are errors here
    else:
        with pytest.warns(UserWarning, match=warning):
            inspect.check_momentum(method, built)
