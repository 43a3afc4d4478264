"""Codes for the values of all ranks, each with its bits and the resulting error of the mean."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from record import Record, Shown
from torch import Tensor

from thinwire.codecs import Cast, Chain, Entropy, Identity, Quantize, TopK
from thinwire.core import Codec
from thinwire.reducers import LGC, LGCServer
from thinwire.reducers.learned import Learned, LearnedState
from thinwire.wire import payload

SEED = 1
BLOCK = 16  # values per block of a linear code, the same number as per position of the auto-encoder's code


class Result(NamedTuple):
    """The bits and errors of a code, over the steps that it did not learn from."""

    name: str
    bits: float  # per value that a rank sends; the mean over ranks
    order: float  # more bits per value, which the leader sends for the order
    real: float  # error of the mean gradient, of its norm
    normal: float  # the same for values over their layer's root mean square
    late: float | None = None  # at the end of learning, as the method reports it
    first: float = 0.0  # real, over the first ten steps after learning
    last: float = 0.0  # and over the last ten


def transmitted(x: Tensor, codec: Codec) -> tuple[Tensor, int]:
    """The decoded tensor, and its bits."""
    if codec == Identity():
        return x, 8 * x.nbytes
    buffer = payload.encode(x, codec, SEED)
    return payload.decode(buffer, codec, SEED, x), 8 * buffer.numel()


def error(decoded: Tensor, true: Tensor, weight: Tensor) -> float:
    """Relative to the norm, with these weights."""
    return float(((decoded - true) * weight).norm() / (true * weight).norm())


def measured(
    record: Record, name: str, steps: Iterable[Shown], order: str, send: Callable[[Shown], tuple[Tensor, float]]
) -> Result:
    """The errors and bits of a code; `send` returns the decoded mean and the total bits of all ranks."""
    real, normal, bits = [], [], 0.0
    for shown in steps:
        mean, total = send(shown)
        true = shown.rows.mean(0)
        real.append(error(mean, true, shown.real))
        normal.append(error(mean, true, shown.normal))
        bits += total / record.ranks / record.values
    count = len(real)
    return Result(
        name,
        bits / count,
        record.order_bits(order),
        sum(real) / count,
        sum(normal) / count,
        first=sum(real[:10]) / len(real[:10]),
        last=sum(real[-10:]) / len(real[-10:]),
    )


def plain(record: Record, codec: Codec, name: str) -> Result:
    """Every rank sends its values with a codec."""

    def send(shown: Shown) -> tuple[Tensor, float]:
        received = [transmitted(row, codec) for row in shown.rows]
        return torch.stack([x for x, _ in received]).mean(0), sum(bits for _, bits in received)

    return measured(record, name, record.shown("index")[record.learning :], "index", send)


def leader_alone(record: Record, codec: Codec, name: str) -> Result:
    """Only the leader sends its values; the mean is a multiple of them, learned for each layer."""
    steps = record.shown("index")
    along, square = torch.zeros(len(record.counts)), torch.zeros(len(record.counts))
    for shown in steps[: record.learning]:
        own, mean = shown.rows[shown.leader], shown.rows.mean(0)
        along += torch.stack([x.sum() for x in torch.split(own * mean, record.counts)])
        square += torch.stack([x.sum() for x in torch.split(own * own, record.counts)])
    multiple = record.each(along / square)

    def send(shown: Shown) -> tuple[Tensor, float]:
        received, bits = transmitted(shown.rows[shown.leader], codec)
        return received * multiple, bits

    return measured(record, name, steps[record.learning :], "index", send)


def order_alone(record: Record, codec: Codec | None, name: str) -> Result:
    """The mean learned for each position of the order, plus the ranks' differences from it, sent with a codec."""
    steps = record.shown("value")
    learned = torch.stack([shown.rows.mean(0) for shown in steps[: record.learning]]).mean(0)

    def send(shown: Shown) -> tuple[Tensor, float]:
        if codec is None:
            return learned, 0.0
        received = [transmitted(row - learned, codec) for row in shown.rows]
        return learned + torch.stack([x for x, _ in received]).mean(0), sum(bits for _, bits in received)

    return measured(record, name, steps[record.learning :], "value", send)


def blocks(rows: Tensor) -> Tensor:
    """Rows, cut into blocks: [rows, blocks, values of a block]."""
    return F.pad(rows, (0, -rows.shape[-1] % BLOCK)).unflatten(-1, (-1, BLOCK))


def principal(record: Record, order: str) -> tuple[Tensor, Tensor]:
    """The mean block of all ranks' values, and its principal components, the largest first."""
    seen = torch.cat([blocks(shown.rows).flatten(0, 1) for shown in record.shown(order)[: record.learning]]).double()
    mean = seen.mean(0)
    _, vectors = torch.linalg.eigh((seen - mean).T @ (seen - mean) / len(seen))
    return mean.float(), vectors.flip(1).float()


def linear(record: Record, order: str, components: int, codec: Codec, name: str) -> Result:
    """Blocks of values as their first principal components."""
    mean, vectors = principal(record, order)
    kept = vectors[:, :components]

    def send(shown: Shown) -> tuple[Tensor, float]:
        received = [transmitted(x.T.contiguous(), codec) for x in (blocks(shown.rows) - mean) @ kept]
        code = torch.stack([x for x, _ in received]).mean(0)
        decoded = (code.T @ kept.T + mean).flatten()[: record.values]
        return decoded, sum(bits for _, bits in received)

    return measured(record, name, record.shown(order)[record.learning :], order, send)


@dataclass(frozen=True, repr=False)
class Rated(LGC):
    """LGC with a rate term: it also learns to keep its codes short for an entropy coder."""

    weight: float = 0.0  # of the code's bits in the loss
    levels: int = 127  # of the quantizer, on each side of zero

    def decoded(self, weights: Tensor, rows: Tensor, state: LearnedState) -> tuple[Tensor, Tensor]:
        if not self.weight:
            return super().decoded(weights, rows, state)
        codes = self.network.encode(weights, rows)
        code = torch.stack([self.as_decoded(code, state.seed) for code in codes]).mean(0)
        decoded = self.network.decode(weights, code, rows.shape[1])
        off = (decoded - rows.mean(0)).square().mean()
        step = codes.detach().abs().amax() / self.levels
        return decoded, off + self.weight * torch.log2(1 + codes.abs() / step).mean()


class Config(NamedTuple):
    """How an auto-encoder learns."""

    order: str = "value"
    scale: str = "rms"
    channels: int = 4
    codec: Codec = Identity()
    optimizer: str = "adam"
    rate: float = 1e-3
    weight: float = 0.0  # of the code's bits
    passes: int = 1  # over the learning steps; the method itself makes one


def trained_state(
    reducer: Learned, steps: list[Shown], passes: int, initial: LearnedState | None = None
) -> LearnedState:
    """The state after learning from these steps, one update per step, from the start or from another state."""
    state = initial or reducer.init(torch.empty(steps[0].rows.shape[1]), SEED)
    for _ in range(passes):
        for shown in steps:
            off, trained = reducer.trained_on(shown.rows, state._replace(step=shown.at))
            state = state._replace(trained=trained, error=off)
    return state


class Student:
    """A record's auto-encoders, each trained once."""

    def __init__(self, record: Record, passes: int) -> None:
        self.record, self.passes = record, passes
        self._trained: dict[Config, tuple[LGC, LearnedState]] = {}

    def lgc(self, config: Config) -> tuple[LGC, LearnedState]:
        """The ring form after learning. A rate term is added afterwards: from the start, the code would stay unused."""
        base, config = config, config._replace(passes=config.passes * self.passes)
        if config not in self._trained:
            reducer = Rated(
                learning_steps=10**9,
                channels=config.channels,
                codec=config.codec,
                optimizer=config.optimizer,
                rate=config.rate,
                ranks=tuple(range(self.record.ranks)),
                weight=config.weight,
            )
            steps = self.record.shown(config.order, config.scale)[: self.record.learning]
            initial = self.lgc(base._replace(weight=0.0, codec=Identity()))[1] if config.weight else None
            self._trained[config] = reducer, trained_state(reducer, steps, config.passes, initial)
        return self._trained[config]

    def ring(self, config: Config, name: str, codec: Codec | None = None) -> Result:
        """The ring form, frozen; its codes are sent with the codec of its training, or another."""
        reducer, state = self.lgc(config)
        through, weights = codec or config.codec, state.trained.weights

        @torch.no_grad()
        def send(shown: Shown) -> tuple[Tensor, float]:
            received = [transmitted(code, through) for code in reducer.network.encode(weights, shown.rows)]
            code = torch.stack([x for x, _ in received]).mean(0)
            return reducer.network.decode(weights, code, self.record.values), sum(bits for _, bits in received)

        steps = self.record.shown(config.order, config.scale)[self.record.learning :]
        return measured(self.record, name, steps, config.order, send)._replace(late=state.error)


class Served(NamedTuple):
    """The server form's result, and its errors on the ranks' own values."""

    result: Result
    leader: float
    others: float


def server(
    record: Record, innovation: float, similarity: float, passes: int, name: str, decoders: str = "rank"
) -> Served:
    """The server form, with a decoder for each rank, or for each offset from the leader."""
    form = LGCServer(
        learning_steps=10**9,
        innovation=innovation,
        similarity=similarity,
        decoders=decoders,
        ranks=tuple(range(record.ranks)),
    )
    steps = record.shown("value")
    state = trained_state(form, steps[: record.learning], passes)
    weights, off = state.trained.weights, []

    @torch.no_grad()
    def send(shown: Shown) -> tuple[Tensor, float]:
        code, bits = transmitted(form.network.encode(weights, shown.rows)[shown.leader], form.codec)
        own = [transmitted(row, TopK(innovation)) for row in shown.rows]
        restored = form._restored(weights, code, torch.stack([x for x, _ in own]), state._replace(step=shown.at))
        off.append([error(a, b, shown.real) for a, b in zip(restored, shown.rows, strict=True)])
        off[-1].insert(0, off[-1].pop(shown.leader))
        return restored.mean(0), bits + sum(extra for _, extra in own)

    result = measured(record, name, steps[record.learning :], "value", send)._replace(late=state.error)
    each = torch.tensor(off).mean(0)
    return Served(result, float(each[0]), float(each[1:].mean()))


HALF = Cast("float16")


def entropy(bits: int) -> Codec:
    return Chain(Quantize(bits), Entropy())
