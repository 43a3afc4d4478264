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
    """The paper's algorithm for one tensor, on lists of numbers, entry by entry, with all ranks in one place."""

    def __init__(self, ranks: int, size: int, clip: float | None) -> None:
        self.velocities, self.sums = ([[0.0] * size for _ in range(ranks)] for _ in range(2))
        self.clip = clip

    def step(self, gradients: list[list[float]], kept: int) -> list[float]:
        """What all ranks apply; each sends so many entries."""
        ranks = len(gradients)
        applied = [0.0] * len(gradients[0])
        for gradient, velocity, total in zip(gradients, self.velocities, self.sums, strict=True):
            factor = 1.0
            if self.clip is not None:
                norm = math.sqrt(sum(entry * entry for entry in gradient))
                # The paper's ranks divide by their number first, and clip what is left of a gradient to a root's part.
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
    """What pulls the weight to another place on every rank, and noise."""
    pulls = by_rank(ranks, *SHAPE, seed=99, dtype=torch.float64)
    noise = by_rank(ranks, *SHAPE, seed=step, dtype=torch.float64)
    return [0.5 * (weight - pull) + 0.3 * wobble for pull, wobble in zip(pulls, noise, strict=True)]


class Training:
    """Ranks that train one matrix in 64 bits, each with an optimizer of its own."""

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
        talks = [self.strategy.before_update(r, s) for r, s in zip(self.replicas, self.states, strict=True)]
        self.states = [outcome.state for outcome in Simulated(self.ranks).run(talks)]
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
def test_it_trains_as_the_papers_algorithm_and_the_authors_optimizer_do(
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
        # The authors' optimizer: momentum is for the weight decay alone.
        decayed = [MOMENTUM * b + DECAY * w for b, w in zip(decayed, weight, strict=True)]
        weight = [w - RATE * (b + d) for w, b, d in zip(weight, decayed, applied, strict=True)]
        training.step(gradients)
        expected = torch.tensor(weight, dtype=torch.float64).view(SHAPE)
        for model in training.models:
            torch.testing.assert_close(model.weight.detach(), expected, rtol=1e-10, atol=1e-12)
    assert clipped == ranks * len(kept), "where nothing is cut, clipping is not tested"


@pytest.mark.parametrize("decay", [0.0, DECAY])
def test_the_optimizers_buffer_is_what_all_have_sent(decay: float) -> None:
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


def test_what_is_sent_whole_in_every_step_has_no_momentum_left() -> None:
    # All velocities are masked, so the optimizer's momentum is all there would be, and it is taken back.
    training = Training(DGC(1.0, values=Identity()), 2, SGD, lr=RATE, momentum=MOMENTUM)
    weight = nn.Parameter(torch.zeros(SHAPE, dtype=torch.float64))
    plain_sgd = SGD([weight], lr=RATE)
    for i in range(10):
        gradients = gradients_at(i, 2, weight.detach())
        weight.grad = (gradients[0] + gradients[1]) / 2
        plain_sgd.step()
        training.step(gradients)
        torch.testing.assert_close(training.weight, weight.detach(), rtol=1e-12, atol=1e-12)


def test_what_waits_is_as_far_as_momentum_would_have_gone() -> None:
    # One entry is so large that it is the one sent; all others wait, as if SGD with momentum had summed them up.
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


def test_both_sums_are_masked_where_something_was_sent_and_keep_what_was_rounded() -> None:
    xs = by_rank(3, *SHAPE)
    reducer = DGC(0.1)
    held = step(reducer, xs, [reducer.init(x, 0) for x in xs])
    for x, reply, state in zip(xs, held.replies, held.states, strict=True):
        sent = reply.sent != 0
        assert sent.sum() == 100
        assert (state.velocity[sent] == 0).all()
        assert same_bits(state.velocity[~sent], x[~sent])
        assert same_bits(state.unsent, x - x.half().float() * sent)
        assert 0 < state.unsent[sent].abs().max() < 2e-3, "what 11 bits leave"


def test_what_is_rounded_to_nothing_was_not_sent() -> None:
    reducer = DGC(1.0, values=Cast("float16"))
    x = torch.tensor([[1.0, 1e-9]])
    held = step(reducer, [x], [reducer.init(x, 0)])
    (state,) = held.states
    assert held.replies[0].sent.tolist() == [[1.0, 0.0]]
    assert same_bits(state.velocity, torch.tensor([[0.0, 1e-9]]))
    assert same_bits(state.unsent, torch.tensor([[0.0, 1e-9]]))


@pytest.mark.parametrize(("ranks", "norm"), [(1, 3.0), (4, 6.0), (9, 9.0)])
def test_a_gradient_is_clipped_to_what_the_mean_may_have_of_it(ranks: int, norm: float) -> None:
    replica = replica_of(nn.Linear(SHAPE[1], SHAPE[0], bias=False), size=ranks)
    ((_, reducer, _),) = DataParallel(DGC(1.0, clip=3.0)).units(replica)
    assert reducer == DGC(1.0, clip=3.0, ranks=ranks)
    x = random(*SHAPE)
    said = next(reducer.reduce(x, reducer.init(x, 0))).tensor.dense()
    torch.testing.assert_close(said, x * (norm / x.double().norm()).float())
    small = x / 100
    assert small.norm() < norm
    assert same_bits(next(reducer.reduce(small, reducer.init(x, 0))).tensor.dense(), small)


def test_the_ranks_that_are_given_count() -> None:
    assert DGC(clip=3.0, ranks=16).specialize(parameter(torch.zeros(SHAPE))) == DGC(clip=3.0, ranks=16)


def test_a_norm_beyond_32_bits_is_clipped_too() -> None:
    x = random(*SHAPE) * 1e25
    assert x.norm().isinf()
    reducer = DGC(1.0, clip=3.0)
    assert float(next(reducer.reduce(x, reducer.init(x, 0))).tensor.dense().norm()) == pytest.approx(3.0)


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_clipping_does_not_hide_what_is_not_finite(wrong: float) -> None:
    x = random(*SHAPE)
    x[3, 4] = wrong
    reducer = DGC(1.0, clip=3.0)
    assert not next(reducer.reduce(x, reducer.init(x, 0))).tensor.dense().isfinite().all()


def test_a_gradient_of_zeros_can_be_clipped() -> None:
    x = torch.zeros(SHAPE)
    reducer = DGC(1.0, clip=3.0)
    assert same_bits(next(reducer.reduce(x, reducer.init(x, 0))).tensor.dense(), x)


def sent_in_turn(reducer: DGC, state: DGCState, steps: int) -> tuple[list[int], DGCState]:
    """How many entries are sent in each step, of 1,000."""
    counts = []
    for i in range(steps):
        held = step(reducer, by_rank(1, *SHAPE, seed=i), [state])
        (state,) = held.states
        counts.append(int(held.replies[0].sent.count_nonzero()))
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
def test_the_ramp_falls_in_even_stages_to_the_ratio(ratio: float, ramp_steps: int, counts: list[int]) -> None:
    reducer = DGC(ratio, ramp_steps=ramp_steps)
    sent, state = sent_in_turn(reducer, reducer.init(torch.zeros(SHAPE), 0), len(counts))
    assert sent == counts
    assert state.step == ramp_steps, "what has been counted to its end stays as it is"


def test_a_checkpoint_goes_on_within_the_ramp() -> None:
    reducer = DGC(ramp_steps=8)
    counts, state = sent_in_turn(reducer, reducer.init(torch.zeros(SHAPE), 0), 3)
    copy = restored(reducer.init(torch.zeros(SHAPE), 0), plain(state))
    whole, end = sent_in_turn(reducer, state, 7)
    again, end_of_copy = sent_in_turn(reducer, copy, 7)
    assert counts + again == counts + whole == [250, 250, 62, 62, 16, 16, 4, 4, 1, 1]
    assert same_bits(plain(end_of_copy), plain(end))


def test_an_optimizer_without_momentum_gets_what_was_sent() -> None:
    training = Training(DGC(0.02, outside=0.0), 2, Adam, lr=RATE)
    assert training.states[0]["weight"].applied is None
    reducer = training.strategy.reducer
    states = [reducer.init(training.weight, 0) for _ in range(2)]
    weight = nn.Parameter(torch.zeros(SHAPE, dtype=torch.float64))
    optimizer = Adam([weight], lr=RATE)
    for i in range(5):
        gradients = gradients_at(i, 2, weight.detach())
        held = step(reducer, gradients, states)
        states = held.states
        assert same_bits(held.reduced, (held.replies[0].sent + held.replies[1].sent) * 0.5)
        weight.grad = held.reduced
        optimizer.step()
        training.step(gradients)
        assert same_bits(training.weight, weight.detach())


def test_the_optimizers_momentum_may_be_another() -> None:
    reducer = DGC(1.0, momentum=0.5, outside=0.25, values=Identity())
    state = reducer.init(torch.zeros(1, 2), 0)
    reduced = []
    for x in ([[8.0, 0.0]], [[8.0, 8.0]], [[0.0, 0.0]]):
        held = step(reducer, [torch.tensor(x)], [state])
        (state,) = held.states
        reduced.append(held.reduced.tolist())
    assert reduced == [[[8.0, 0.0]], [[6.0, 8.0]], [[-2.0, -2.0]]]


def test_matrices_are_alone_and_vectors_are_sent_as_they_are() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))
    units = DataParallel(DGC()).units(replica_of(model, size=2))
    assert [(unit.names, unit.reducer) for unit in units] == [
        (("0.weight",), DGC()),
        (("0.bias", "1.weight", "1.bias", "3.bias"), Average()),
        (("3.weight",), DGC()),
    ]


def test_no_memory_is_allocated_for_the_residual_after_the_second_step() -> None:
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
    ("method", "optimizer", "told"),
    [
        ("dgc", lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), None),
        ("dgc", lambda p: torch.optim.SGD(p, 0.1), r"of 0.9 back .* SGD has 0: use DGC\(..., outside=0\)"),
        ("dgc", lambda p: torch.optim.Adam(p), "Adam has 0"),
        ("DGC(outside=0.0)", lambda p: torch.optim.Adam(p), None),
        (
            "Choose(When(DGC(momentum=0.5), min_dim=2))",
            lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
            "of 0.5 back .* SGD has 0.9",
        ),
        ("topk", lambda p: torch.optim.Adam(p), None),
    ],
)
def test_an_optimizer_with_another_momentum_is_a_warning(method: str, optimizer: Any, told: str | None) -> None:
    made = optimizer([nn.Parameter(torch.zeros(3, 3))])
    if told is None:
        inspect.check_momentum(method, made)  # warnings are errors here
    else:
        with pytest.warns(UserWarning, match=told):
            inspect.check_momentum(method, made)
