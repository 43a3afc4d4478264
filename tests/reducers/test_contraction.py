"""Residuals stay bounded: unbiased codecs are scaled, and codecs without an error bound are refused."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from thinwire import (
    DGC,
    EF21,
    Average,
    Chain,
    DataParallel,
    Difference,
    Dither,
    Entropy,
    ErrorFeedback,
    ExponentialDither,
    Gossip,
    LeaderTopK,
    LocalSGD,
    NaturalCompression,
    PowerSGD,
    Quantize,
    RandomK,
    Server,
    Sharded,
    Shrink,
    Sign,
    Ternary,
    TopK,
    WarmUp,
)
from thinwire.core import Conversation
from thinwire.core.lazy import materialize
from thinwire.extend import Codec, Reducer, Replica

from ..helpers import by_rank, random, started, step
from ..reference_run import ReferenceRun

WITH_RESIDUAL = (ErrorFeedback, Difference, EF21)


@pytest.mark.parametrize("kind", WITH_RESIDUAL)
def test_an_unbiased_codec_is_divided_by_zeta(kind: type) -> None:
    codec = Dither(2)
    x = random(100)
    specialized, (state,) = started(kind(codec), x, 1)
    result = step(specialized, [x], [state])
    _, (initial,) = started(Average(codec), x, 1)
    plain = step(Average(codec), [x], [initial]).reduced
    torch.testing.assert_close(result.reduced, plain / codec.zeta(100))


def test_unbiased_codecs_are_scaled_inside_other_reducers() -> None:
    dithered = Chain(TopK(0.1), ExponentialDither())
    assert ErrorFeedback(dithered).compressor == Average(Shrink(dithered))
    assert ErrorFeedback(Average(dithered)).compressor == Average(Shrink(dithered))
    assert ErrorFeedback(Sharded(Dither(1), Sign())).compressor == Sharded(Shrink(Dither(1)), Sign())
    assert ErrorFeedback(Server(Dither(1), Sign())).compressor == Server(Shrink(Dither(1)), Sign())
    for codec in (TopK(0.1), Quantize(4), Sign(), RandomK(0.1), Chain(TopK(0.1), Entropy())):
        assert ErrorFeedback(codec).compressor == Average(codec)


@pytest.mark.parametrize("kind", WITH_RESIDUAL)
def test_a_codec_without_an_error_bound_is_refused(kind: type) -> None:
    with pytest.raises(ValueError, match=rf"error of Ternary\(1.5\) .*{kind.__name__}\(..., force=True\) accepts"):
        kind(Ternary(1.5))
    with pytest.warns(UserWarning, match="grows without limit: watch the loss") as warned:
        forced = kind(Ternary(1.5), force=True)
    assert {warning.filename for warning in warned} == {__file__}, "the warning shows the user's line"
    with pytest.warns(UserWarning, match="no delta"):
        specialized, (state,) = started(forced, torch.ones(4), 1)
    assert not step(specialized, [torch.ones(4)], [state]).reduced.any()


def test_a_server_refuses_a_codec_without_an_error_bound() -> None:
    with pytest.raises(ValueError, match="Server adds the residual to each message"):
        Server(Sign(), Ternary(1.5))
    with pytest.raises(ValueError, match="Sharded adds the residual to each message"):
        Sharded(Sign(), Ternary(1.5))
    xs = by_rank(2, 50)
    for reducer in (Server(Quantize(8), Dither(1)), Sharded(Quantize(8), Dither(1))):
        specialized, states = started(reducer, xs[0], 2)
        largest = 0.0
        for _ in range(200):
            result = step(specialized, xs, states)
            states = result.states
            largest = max(largest, float(states[0].residual.norm()))
        # In each step 1 - 1/delta of the residual remains, so its norm is at most 2 delta times that of the input.
        delta = Dither(1).bounds(50).shrunk.delta
        assert delta is not None
        assert largest < 2 * delta * float((sum(xs) / 2).norm())


NESTED: tuple[Reducer, ...] = (
    ErrorFeedback(WarmUp(0, Dither(1))),
    DGC(by=Dither(1), momentum=0.0, outside=0.0),
    DGC(0.5, momentum=0.0, outside=0.0, values=Dither(1)),
    ErrorFeedback(LeaderTopK(0.5, values=Dither(1))),
    ErrorFeedback(PowerSGD(2, codec=Dither(1))),
)


@pytest.mark.parametrize("reducer", NESTED, ids=repr)
def test_the_residual_stays_bounded_with_a_nested_unbiased_codec(reducer: Reducer) -> None:
    xs = by_rank(2, 20, 30)
    specialized, _ = started(reducer, xs[0], 2)
    specialized = specialized.fuse((600,)) or specialized
    states = [specialized.init(torch.zeros_like(xs[0]), 7) for _ in xs]
    largest = 0.0
    for _ in range(100):
        result = step(specialized, xs, states)
        states = result.states
        residual = specialized.residual(states[0])
        assert residual is not None
        largest = max(largest, float(materialize(residual).norm()))
    assert largest < 1e4  # without scaling, it reaches 1e5 to 1e17


@pytest.mark.parametrize(
    "make",
    [
        lambda: ErrorFeedback(WarmUp(5, Ternary(1.5))),
        lambda: DGC(by=Ternary(1.5)),
        lambda: DGC(values=Ternary(1.5)),
        lambda: ErrorFeedback(LeaderTopK(values=Ternary(1.5))),
    ],
)
def test_a_nested_codec_without_an_error_bound_is_refused(make: Callable[[], Reducer]) -> None:
    with pytest.raises(ValueError, match=r"No bound is known for the error of .*Ternary\(1.5\)"):
        make()


def test_by_rate_is_for_the_outermost_error_feedback_only() -> None:
    by_rate = ErrorFeedback(TopK(0.1), by_rate=True)
    for make in (lambda: ErrorFeedback(by_rate), lambda: EF21(by_rate), lambda: DGC(by=by_rate)):
        with pytest.raises(ValueError, match=r"outermost error feedback|keeps a residual"):
            make()
    with pytest.raises(ValueError, match="uses the learning rate, which a server does not support"):
        Server(by_rate, Sign())
    with pytest.raises(ValueError, match="has a residual at a server, too"):
        ErrorFeedback(Sharded(TopK(0.1), Sign()), by_rate=True)


def test_by_rate_with_local_sgd_is_an_error_in_a_reference_run() -> None:
    replica = Replica.of({"x": torch.ones(4, requires_grad=True)})
    with pytest.raises(ValueError, match="by_rate=True is for gradients, and LocalSGD"):
        ReferenceRun(LocalSGD(ErrorFeedback(TopK(0.5), by_rate=True)), [replica]).before_update(rate=0.1)
    with pytest.raises(ValueError, match="needs the learning rate"):
        ReferenceRun(DataParallel(ErrorFeedback(TopK(0.5), by_rate=True)), [replica]).before_update()


def test_gossip_takes_differences_and_not_ef21() -> None:
    with pytest.raises(ValueError, match=r"Gossip takes Difference\(TopK\(0.1\)\), and not EF21"):
        Gossip(EF21(TopK(0.1)))
    with pytest.raises(ValueError, match="keeps a residual, as DGC around it does"):
        DGC(by=EF21(TopK(0.1)))


# A counter-example to top-k without error feedback: three functions of three numbers, f(x) = <a, x>^2 + |x|^2 / 4.
VECTORS = torch.tensor([[-3.0, 2.0, 2.0], [2.0, -3.0, 2.0], [2.0, 2.0, -3.0]], dtype=torch.float64)
RATE, STEPS = 0.02, 300


def descended(reducer: Codec | Reducer, vectors: Tensor, rate: float, steps: int, start: Tensor) -> Tensor:
    """Gradient descent on the mean of <a, x>^2 + |x|^2 / 4, one vector a per rank; returns x after each step."""
    points = [start.clone().requires_grad_() for _ in vectors]
    replicas = [Replica.of({"x": x}, "other", rank, len(points)) for rank, x in enumerate(points)]
    reference = ReferenceRun(DataParallel(reducer), replicas)
    path = [start.clone()]
    for _ in range(steps):
        for x, vector in zip(points, vectors, strict=True):
            loss = (vector @ x) ** 2 + x.square().sum() / 4
            (x.grad,) = torch.autograd.grad(loss, x)
        reference.before_update()
        with torch.no_grad():
            for x in points:
                assert x.grad is not None
                x -= rate * x.grad
        reference.after_update()
        path.append(points[0].detach().clone())
    return torch.stack(path)


def test_top_1_without_error_feedback_diverges_at_the_known_rate() -> None:
    norms = descended(TopK(1 / 3), VECTORS, RATE, STEPS, torch.ones(3, dtype=torch.float64)).norm(dim=1)
    growth = norms[1:] / norms[:-1]
    torch.testing.assert_close(growth, torch.full_like(growth, 1 + 11 * RATE / 6))
    assert norms[-1] == pytest.approx(85_173, rel=1e-4)


@pytest.mark.parametrize("reducer", [ErrorFeedback(TopK(1 / 3)), EF21(TopK(1 / 3))], ids=repr)
def test_top_1_with_error_feedback_converges(reducer: Reducer) -> None:
    norms = descended(reducer, VECTORS, RATE, 2 * STEPS, torch.ones(3, dtype=torch.float64)).norm(dim=1)
    assert norms[STEPS] < 5e-3
    assert norms[-1] < 1e-4


CODECS = (
    TopK(0.1),
    RandomK(0.2),
    Sign(),
    Quantize(2),
    NaturalCompression(),
    Shrink(Dither(1)),
    Shrink(Chain(TopK(0.2), ExponentialDither(2, 3))),
)
SIZE = 20
CURVATURES = torch.logspace(0, 1, SIZE, dtype=torch.float64)  # from 1, which is mu, to 10, which is L


@pytest.mark.parametrize("codec", CODECS, ids=repr)
def test_one_rank_converges_at_least_as_fast_as_the_bound(codec: Codec) -> None:
    """f(x) = <x, A x> / 2, rate 1/L: every step multiplies f by 1 - mu / (delta L) at most, in expectation."""
    delta = codec.delta(SIZE)
    assert delta is not None
    factor, steps = 1 - CURVATURES[0] / (delta * CURVATURES[-1]), 40
    final = []
    for seed in range(3):
        x, reducer = random(SIZE, seed=seed, dtype=torch.float64), Average(codec)
        state = reducer.init(x, 1000 * seed)
        first = float((CURVATURES * x * x).sum())
        for _ in range(steps):
            result = step(reducer, [CURVATURES * x], [state])
            (state,) = result.states
            x = x - result.reduced / CURVATURES[-1]
        final.append(float((CURVATURES * x * x).sum()) / first)
    assert sum(final) / len(final) <= factor**steps


@pytest.mark.parametrize("codec", CODECS, ids=repr)
def test_ranks_with_error_feedback_converge_at_least_as_fast_as_the_bound(codec: Codec) -> None:
    """Four different functions with one optimum: at rate 1 / (28 delta L), a factor of 1 - mu rate / 2 per step."""
    delta, ranks, steps = codec.delta(SIZE), 4, 80
    assert delta is not None
    weights = torch.stack([1 + random(SIZE, seed=rank, dtype=torch.float64).abs() for rank in range(ranks)])
    weights = weights / weights.mean(0)
    mu, smoothness = float(CURVATURES[0]), float((weights * CURVATURES).max())
    rate = 1 / (28 * delta * smoothness)
    x = random(SIZE, dtype=torch.float64)
    first = float(x.square().sum())
    specialized, states = started(ErrorFeedback(codec), x, ranks)
    for _ in range(steps):
        result = step(specialized, [weight * CURVATURES * x for weight in weights], states)
        states, x = result.states, x - rate * result.reduced
    assert float(x.square().sum()) <= 2 * (1 - mu * rate / 2) ** steps * first


@dataclass(frozen=True, repr=False)
class Custom(Average):
    """A user-defined reducer with its codec in a field."""


@dataclass(frozen=True, repr=False)
class Opaque(Reducer):
    """A user-defined reducer that compresses by itself."""

    def init(self, like: Tensor, seed: int) -> int:
        return seed

    def reduce(self, x: Tensor, state: int) -> Conversation:
        return (yield from Average().reduce(x, state))


@dataclass(frozen=True, repr=False)
class Bounded(Opaque):
    bounded: ClassVar[bool] = True


def test_codecs_inside_a_custom_reducer_are_scaled_or_refused() -> None:
    assert ErrorFeedback(Custom(ExponentialDither())).compressor == Custom(Shrink(ExponentialDither()))
    assert ErrorFeedback(WarmUp(3, Custom(ExponentialDither()))).compressor == WarmUp(
        3, Custom(Shrink(ExponentialDither()))
    )
    with pytest.raises(ValueError, match=r"No bound is known for the error of Ternary"):
        ErrorFeedback(Custom(Ternary(1.5)))


@pytest.mark.parametrize("wrapper", [ErrorFeedback, EF21, Difference])
def test_a_custom_reducer_without_a_known_bound_is_refused(wrapper: type[ErrorFeedback]) -> None:
    with pytest.raises(ValueError, match=r"error of Opaque\(\).*states bounded = True.*force=True"):
        wrapper(Opaque())
    with pytest.warns(UserWarning, match=r"error of Opaque\(\).*watch the loss"):
        wrapper(Opaque(), force=True)
    assert wrapper(Bounded()).inner == Bounded()
