"""Measures the compression error of methods on tensors, and the payload bits that they send."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf, sqrt
from statistics import mean, variance
from typing import Any, NamedTuple

from torch import Tensor

import thinwire
from thinwire import extend, inspect, simulate
from thinwire.lab.contraction.sources import Sample, Source

MANY = 10**6  # entries
STOCHASTIC = (thinwire.RandomK, thinwire.AdaptiveRandom)  # codecs that are random, and biased
RANKS = 2  # ranks that reduce the same tensor: the fewest ranks that send anything


class Figures(NamedTuple):
    """Means over some tensors: the error weighted by squared norm, the bits by number of entries."""

    entries: int
    bits: float  # per entry
    error: float  # E|C(x) - x|^2 / |x|^2
    give_or_take: float  # standard error of the error, which is a mean over draws
    bound: float | None  # bound of the error for any tensor; None if there is none or it is not known


@dataclass(frozen=True)
class Measured:
    method: str
    unbiased: bool
    overall: Figures
    kinds: Mapping[str, Figures]
    steps: Mapping[int, Figures]

    def as_dict(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "unbiased": self.unbiased,
            "overall": self.overall._asdict(),
            "kinds": {kind: figures._asdict() for kind, figures in self.kinds.items()},
            "steps": {step: figures._asdict() for step, figures in self.steps.items()},
        }


@dataclass(frozen=True)
class Study:
    source: Source
    draws: int
    measured: tuple[Measured, ...]

    @property
    def kinds(self) -> list[str]:
        return list(self.measured[0].kinds)

    @property
    def steps(self) -> list[int]:
        return list(self.measured[0].steps)

    def as_dict(self) -> dict[str, Any]:
        about = {"title": self.source.title, "description": self.source.description, "draws": self.draws}
        return about | {"methods": [measured.as_dict() for measured in self.measured]}


class _Result(NamedTuple):
    """The result for one tensor."""

    step: int
    kind: str
    entries: int
    squares: float
    error: float  # squared, mean over draws
    variance: float  # of that mean
    nbytes: int
    bound: float | None


def study(
    methods: Iterable[str], source: Source, draws: int, progress: Callable[[str], None] = lambda name: None
) -> Study:
    """Measure every method on every tensor of a source; stochastic methods `draws` times."""
    if draws < 1:
        raise ValueError(f"the number of draws must be 1 or more, not {draws}")
    reducers = {method: _reducer(method) for method in methods}
    found = defaultdict[str, list[_Result]](list)
    for sample in source.samples():
        for method, reducer in reducers.items():
            progress(f"{method} on {sample.name}")
            found[method].append(_measure(reducer, sample, draws))
    if not found:
        raise ValueError(f"{source.folder} has no gradient that is finite and not zero")
    return Study(source, draws, tuple(_measured(m, reducers[m], results) for m, results in found.items()))


def _reducer(method: str) -> extend.Reducer:
    strategy = thinwire.strategy_of(method)
    if strategy.gradient_averaging is None:
        raise ValueError(f"{method} does not reduce one gradient at a time, so its error cannot be measured")
    (reducer,) = thinwire.strategy_of(thinwire.settled(strategy)).inner_methods
    return thinwire.Average(reducer) if isinstance(reducer, extend.Codec) else reducer


def _measure(method: extend.Reducer, sample: Sample, draws: int) -> _Result:
    x = sample.tensor
    parameter = extend.Parameter(sample.name, sample.layer, x.to("meta"), tuple(range(RANKS)))
    specialized = method.specialize(parameter)
    reducer = specialized.fuse((x.numel(),)) or specialized
    sent = [_send(reducer, x, seed) for seed in range(draws if _is_stochastic(reducer) else 1)]
    errors, nbytes = [error for error, _ in sent], sent[0][1]
    spread = variance(errors) / len(errors) if len(errors) > 1 else 0.0
    return _Result(
        sample.step, sample.kind, x.numel(), _squares(x), mean(errors), spread, nbytes, _bound(reducer, x.numel())
    )


def _squares(x: Tensor) -> float:
    return float(x.double().square().sum())


def _is_stochastic(reducer: extend.Reducer) -> bool:
    """Whether the message depends on the seed."""
    for part in inspect.parts_of(reducer):
        if isinstance(part, extend.Codec) and part.zeta(MANY) not in (None, 1.0):
            return True
        if isinstance(part, STOCHASTIC) or (isinstance(part, extend.Reducer) and part.randomized):
            return True
    return False


def _send(reducer: extend.Reducer, x: Tensor, seed: int) -> tuple[float, int]:
    """Send one rank's first message; returns its squared error and its bytes."""
    sender, peers = simulate.Simulated(RANKS), extend.all_ranks(RANKS)
    conversations = [extend.lockstep([(peers, reducer.reduce(x, reducer.init(x, seed)))]) for _ in range(RANKS)]
    results = sender.run(conversations)
    ((reply, _),) = results[-1]  # rank 0 may be a server
    sent = extend.materialize(reply.sent).to(x.dtype).view(x.shape)
    return _squares(sent - x), sender.meters[-1].payload_bytes


def _bound(reducer: extend.Reducer, size: int) -> float | None:
    codec = reducer.message_codec
    if codec is None:
        return None
    delta, zeta = codec.delta(size), codec.zeta(size)
    if delta is not None:
        return None if delta == inf else 1 - 1 / delta
    return None if zeta is None else zeta - 1


def _measured(method: str, reducer: extend.Reducer, results: list[_Result]) -> Measured:
    by_kind, by_step = defaultdict[str, list[_Result]](list), defaultdict[int, list[_Result]](list)
    for result in results:
        by_kind[result.kind].append(result)
        by_step[result.step].append(result)
    codec = reducer.message_codec
    return Measured(
        method=method,
        unbiased=codec is not None and codec.zeta(10**6) is not None,
        overall=_aggregate(results),
        kinds={kind: _aggregate(some) for kind, some in by_kind.items()},
        steps={step: _aggregate(some) for step, some in by_step.items()},
    )


def _aggregate(results: list[_Result]) -> Figures:
    entries, squares = sum(result.entries for result in results), sum(result.squares for result in results)
    bounds = [result.bound for result in results]
    bound = None
    if all(known is not None for known in bounds):
        bound = sum(result.squares * (result.bound or 0.0) for result in results) / squares
    bits = 8 * sum(result.nbytes for result in results) / entries
    give_or_take = sqrt(sum(result.variance for result in results)) / squares
    return Figures(entries, bits, sum(result.error for result in results) / squares, give_or_take, bound)
