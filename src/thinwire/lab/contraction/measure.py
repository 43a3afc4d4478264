"""What methods lose of a tensor, and how many bits they take for the rest, as they are really sent."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf, sqrt
from statistics import mean, variance
from typing import Any, NamedTuple

from torch import Tensor

import thinwire
from thinwire.lab.contraction.sources import Sample, Source

MANY = 10**6  # entries
DRAWING = (
    thinwire.RandomK,
    thinwire.AdaptiveRandom,
    thinwire.PowerIteration,
    thinwire.PowerSGD,
)
RANKS = 2  # that say the same tensor: enough for something to be sent


class Figures(NamedTuple):
    """Of some tensors together: each counts by its squares for the error, and by its entries for the bits."""

    entries: int
    bits: float  # an entry
    error: float  # E|C(x) - x|^2 / |x|^2
    give_or_take: float  # the standard error of that, as it is a mean over draws
    bound: float | None  # of the error, for any tensor; None if there is none, or it is not known


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
        about = {"title": self.source.title, "said": self.source.said, "draws": self.draws}
        return about | {"methods": [measured.as_dict() for measured in self.measured]}


class _One(NamedTuple):
    """What came of one tensor."""

    step: int
    kind: str
    entries: int
    squares: float
    lost: float
    variance: float  # of the mean that this is
    nbytes: int
    bound: float | None


def study(methods: Iterable[str], source: Source, draws: int, tell: Callable[[str], None] = lambda said: None) -> Study:
    """Measure every method on every tensor of a source; what is drawn by chance is drawn so many times."""
    if draws < 1:
        raise ValueError(f"a mean is over 1 draw or more, not {draws}")
    reducers = {method: _reducer(method) for method in methods}
    found = defaultdict[str, list[_One]](list)
    for sample in source.samples():
        for method, reducer in reducers.items():
            tell(f"{method} on {sample.name}")
            found[method].append(_one(reducer, sample, draws))
    if not found:
        raise ValueError(f"{source.folder} holds no gradient that is finite and not zero")
    return Study(source, draws, tuple(_measured(m, reducers[m], ones) for m, ones in found.items()))


def _reducer(method: str) -> thinwire.Reducer:
    strategy = thinwire.strategy_of(method)
    if not isinstance(strategy, thinwire.DataParallel):
        raise ValueError(f"{method} is not about one gradient at a time, so there is no error of it to measure")
    settled = thinwire.settled(strategy.reducer)
    if isinstance(settled, thinwire.Codec):
        return thinwire.Average(settled)
    assert isinstance(settled, thinwire.Reducer), "of data-parallel training there is nothing else"
    return settled


def _one(method: thinwire.Reducer, sample: Sample, draws: int) -> _One:
    x = sample.tensor
    parameter = thinwire.Parameter(sample.name, sample.layer, x.to("meta"), tuple(range(RANKS)))
    suited = method.specialize(parameter)
    reducer = suited.fuse((x.numel(),)) or suited
    said = [_said(reducer, x, seed) for seed in range(draws if _draws(reducer) else 1)]
    lost, nbytes = [squares for squares, _ in said], said[0][1]
    spread = variance(lost) / len(lost) if len(lost) > 1 else 0.0
    return _One(
        sample.step, sample.kind, x.numel(), _squares(x), mean(lost), spread, nbytes, _bound(reducer, x.numel())
    )


def _squares(x: Tensor) -> float:
    return float(x.double().square().sum())


def _draws(reducer: thinwire.Reducer) -> bool:
    """Whether what is said is another in every draw."""
    for part in thinwire.parts_of(reducer):
        if isinstance(part, thinwire.Codec) and part.zeta(MANY) not in (None, 1.0):
            return True
        if isinstance(part, DRAWING):
            return True
    return False


def _said(reducer: thinwire.Reducer, x: Tensor, seed: int) -> tuple[float, int]:
    """The squares that one rank's message loses to the others, and its bytes; it is the first that it ever says."""
    sender, peers = thinwire.Simulated(RANKS), thinwire.all_ranks(RANKS)
    talks = [thinwire.lockstep([(peers, reducer.reduce(x, reducer.init(x, seed)))]) for _ in range(RANKS)]
    outcomes = sender.run(talks)
    ((reply, _),) = outcomes[-1]  # the first may be a server
    sent = thinwire.materialize(reply.sent).to(x.dtype).view(x.shape)
    return _squares(sent - x), sender.meters[-1].payload_bytes


def _bound(reducer: thinwire.Reducer, size: int) -> float | None:
    codec = _codec(reducer)
    if codec is None:
        return None
    delta, zeta = codec.delta(size), codec.zeta(size)
    if delta is not None:
        return None if delta == inf else 1 - 1 / delta
    return None if zeta is None else zeta - 1


def _codec(reducer: thinwire.Reducer) -> thinwire.Codec | None:
    """What a reducer's message goes through, if that is all there is to it."""
    match reducer:
        case thinwire.Average():
            return reducer.codec
        case thinwire.ErrorFeedback():
            return _codec(reducer.said)
        case thinwire.EF21(momentum=0.0):
            return _codec(reducer.difference.said)
        case thinwire.Difference():
            return _codec(reducer.said)
        case thinwire.Server(up=thinwire.Codec() as codec) | thinwire.Sharded(up=codec):
            return codec
    return None


def _measured(method: str, reducer: thinwire.Reducer, ones: list[_One]) -> Measured:
    by_kind, by_step = defaultdict[str, list[_One]](list), defaultdict[int, list[_One]](list)
    for one in ones:
        by_kind[one.kind].append(one)
        by_step[one.step].append(one)
    codec = _codec(reducer)
    return Measured(
        method=method,
        unbiased=codec is not None and codec.zeta(10**6) is not None,
        overall=_together(ones),
        kinds={kind: _together(some) for kind, some in by_kind.items()},
        steps={step: _together(some) for step, some in by_step.items()},
    )


def _together(ones: list[_One]) -> Figures:
    entries, squares = sum(one.entries for one in ones), sum(one.squares for one in ones)
    bounds = [one.bound for one in ones]
    bound = None
    if all(known is not None for known in bounds):
        bound = sum(one.squares * (one.bound or 0.0) for one in ones) / squares
    bits = 8 * sum(one.nbytes for one in ones) / entries
    give_or_take = sqrt(sum(one.variance for one in ones)) / squares
    return Figures(entries, bits, sum(one.lost for one in ones) / squares, give_or_take, bound)
