"""The tables of the study."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from codes import HALF, Config, Result, Student, entropy, leader_alone, linear, order_alone, plain, server
from record import ORDERS, SCALES, Record
from torch import Tensor

from thinwire.codecs import Identity, Quantize

WINDOWS = 10
AHEAD = (1, 2, 4, 8)  # steps after which indices are compared


class Table(NamedTuple):
    letter: str
    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def text(self) -> str:
        lines = [self.head, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.head))]

        def written(line: Sequence[str]) -> str:
            first, *rest = zip(line, widths, strict=True)
            return "  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)])

        rule = "-" * len(written(self.head))
        return "\n".join([f"{self.letter}. {self.title}", "", written(self.head), rule, *map(written, self.rows)])


class Shared(NamedTuple):
    """The variance of others' values, and of the mean, that a multiple of the leader's explains.

    Tensors are [layers + 1, windows]; the last row is all layers.
    """

    starts: list[int]
    others: Tensor
    mean: Tensor
    unrelated: Tensor  # of the mean, if others' values were unrelated to the leader's

    def table(self, record: Record) -> Table:
        names = [*record.names, "all layers"]
        head = ["layer", "values", *(str(s) for s in self.starts)]
        counts = [*map(str, record.counts), str(record.values)]
        rows = []
        for what, found in (("", self.others), ("mean: ", self.mean)):
            shown = range(len(names)) if not what else [len(names) - 1]
            rows += [[what + names[i], counts[i], *(f"{x:.2f}" for x in found[i])] for i in shown]
        rows.append(["mean, if unrelated: all layers", counts[-1], *(f"{x:.2f}" for x in self.unrelated[-1])])
        title = "Variance of another rank's values that a multiple of the leader's explains, by first step of a window"
        return Table("a", title, head, rows)


def shared(record: Record) -> Shared:
    """Over windows of the training, layer by layer."""
    steps = record.shown("index")
    windows = [list(w) for w in torch.arange(len(steps)).tensor_split(WINDOWS)]
    sums = torch.zeros(5, len(record.counts), len(windows))
    for column, window in enumerate(windows):
        for at in window:
            own = steps[at].rows[steps[at].leader]
            others = torch.cat([steps[at].rows[: steps[at].leader], steps[at].rows[steps[at].leader + 1 :]])
            mean = steps[at].rows.mean(0)
            products = (own * own, others.square().sum(0), (own * others).sum(0), mean * mean, own * mean)
            for i, product in enumerate(products):
                sums[i, :, column] += torch.stack([x.sum() for x in torch.split(product, record.counts)])
    sums = torch.cat([sums, sums.sum(1, keepdim=True)], 1)
    own, square, along, mean, along_mean = sums
    rest = record.ranks - 1
    return Shared(
        [int(record.steps[w[0]]["step"]) for w in windows],
        along.square() / (rest * own * square),
        along_mean.square() / (own * mean),
        own / (own + square),
    )


def orders(record: Record, student: Student, wide: bool) -> tuple[Table, list[Result]]:
    """Every order with every scale; for large records, two orders."""
    pairs = [(o, s) for o in ORDERS for s in SCALES] if wide else [("value", "rms"), ("index", "rms")]
    found = [student.ring(Config(order=o, scale=s), f"{o}, {s}") for o, s in pairs]
    title = f"Error of the decoded mean by order and scale, after {record.learning * student.passes} updates of Adam"
    head = ["order, scale", "end of learning", "after: real", "normalized", "first 10 steps", "last 10"]
    rows = [
        [r.name, f"{r.late:.3f}", f"{r.real:.3f}", f"{r.normal:.3f}", f"{r.first:.3f}", f"{r.last:.3f}"] for r in found
    ]
    return Table("b", title, head, rows), found


def optimizers(record: Record, student: Student) -> tuple[Table, list[Result]]:
    """Adam beside plain gradient descent, with one and with more passes."""
    slow, fast = Config(optimizer="sgd"), Config(optimizer="sgd", rate=0.1)
    ways = [("Adam 1e-3", Config()), ("SGD 1e-3", slow), ("SGD 0.1", fast)]
    ways += [(f"Adam 1e-3, {n} x", Config(passes=n)) for n in (4, 16)] + [("SGD 0.1, 4 x", fast._replace(passes=4))]
    found = [student.ring(config, name) for name, config in ways]
    rows = [[r.name, f"{r.late:.3f}", f"{r.real:.3f}", f"{r.normal:.3f}"] for r in found]
    title = "Error by optimizer; value order, RMS; 4 x, 16 x: a multiple of the updates, on the same steps"
    return Table("c", title, ["optimizer", "end of learning", "real", "normalized"], rows), found


def rates(letter: str, title: str, found: list[Result], ranks: int) -> Table:
    """Bits and errors, one line per code."""
    head = ["", "bits/value", "+ order / ranks", "+ order", "real", "normalized"]
    rows = [
        [
            r.name,
            f"{r.bits:.2f}",
            f"{r.bits + r.order / ranks:.2f}",
            f"{r.bits + r.order:.2f}",
            f"{r.real:.4f}",
            f"{r.normal:.4f}",
        ]
        for r in found
    ]
    return Table(letter, title, head, rows)


def sizes(record: Record, student: Student, wide: bool) -> tuple[Table, list[Result]]:
    """Auto-encoders by the channels of their code and its codec."""
    found = []
    for channels in (1, 2, 4, 8) if wide else (1, 4):
        config = Config(channels=channels)
        found.append(student.ring(config, f"ae {channels}, float32"))
        found.append(student.ring(config, f"ae {channels}, float16", HALF))
        codec_bits = (8, 4, 2) if wide else (4,) if channels == 4 else ()
        for bits in codec_bits:
            rounded = config._replace(codec=Quantize(bits))
            found.append(student.ring(rounded, f"ae {channels}, {bits} bits"))
            found.append(student.ring(rounded, f"ae {channels}, {bits} bits, entropy", entropy(bits)))
        for bits in () if wide else (8,):
            found.append(student.ring(config, f"ae {channels}, {bits} bits after learning", Quantize(bits)))
            found.append(student.ring(config, f"ae {channels}, {bits} bits after learning, entropy", entropy(bits)))
    unordered = Config(order="index", codec=Quantize(8)) if wide else Config(order="index")
    found.append(student.ring(unordered, "ae 4, index order, 8 bits", Quantize(8)))
    config = Config(channels=8 if wide else 4)
    longer = student.ring(config._replace(passes=2), f"ae {config.channels}, 2 x, 8 bits, entropy", entropy(8))
    found.append(longer)
    for weight in (0.002, 0.02):
        rated = config._replace(codec=Quantize(8), weight=weight)
        found.append(student.ring(rated, f"{longer.name}, rate term {weight}", entropy(8)))
    title = f"Auto-encoder, ring form; value order, {found[0].order:.2f} bits/value; 2 x: with twice the updates"
    return rates("d", title, found, record.ranks), found


def baselines(record: Record) -> tuple[Table, list[Result]]:
    """Codes without a network."""
    found = []
    for bits in (8, 4, 3, 2):
        found.append(plain(record, Quantize(bits), f"quantizer, {bits} bits"))
        found.append(plain(record, entropy(bits), f"quantizer, {bits} bits, entropy"))
    for bits in (8, 4, 3):
        found.append(leader_alone(record, Quantize(bits), f"leader alone, {bits} bits"))
    found.append(leader_alone(record, Identity(), "leader alone, float32"))
    found.append(order_alone(record, None, "order alone"))
    for bits in (4, 3, 2):
        found.append(order_alone(record, entropy(bits), f"order and {bits} bits, entropy"))
    for order in ("value", "index"):
        for components in (1, 2, 4, 8):
            found.append(linear(record, order, components, Identity(), f"pca {components}, {order}, float32"))
            found.append(linear(record, order, components, Quantize(8), f"pca {components}, {order}, 8 bits"))
            found.append(linear(record, order, components, entropy(4), f"pca {components}, {order}, 4 bits, entropy"))
    return rates("e", "Without a network, at the same indices and with the same scales", found, record.ranks), found


def servers(record: Record, student: Student, wide: bool) -> tuple[Table, list[Result]]:
    """The server form; bits are up to the server, the mean over ranks."""
    ways = [(i, s) for i in (0.01, 0.1) for s in (0.5, 0.0)] if wide else [(0.01, 0.0)]
    found = [server(record, i, s, student.passes, f"innovation {i:.0%}, similarity {s}") for i, s in ways]
    name = "innovation 1%, similarity 0.0, a decoder for the leader"
    found.append(server(record, 0.01, 0.0, student.passes, name, decoders="turn"))
    head = ["", "bits/value", "+ order / ranks", "mean: real", "normalized", "leader's own", "others' own"]
    rows = [
        [
            r.name,
            f"{r.bits:.2f}",
            f"{r.bits + r.order / record.ranks:.2f}",
            f"{r.real:.3f}",
            f"{r.normal:.3f}",
            f"{one:.3f}",
            f"{others:.3f}",
        ]
        for r, one, others in found
    ]
    table = Table("f", "Server form: one code, the leader's, and each rank's largest values", head, rows)
    return table, [served.result for served in found]


def held_indices(record: Record) -> Table:
    """The share of a step's indices that are the leader's again some steps later."""
    rows = []
    for ahead in AHEAD:
        again, mass = [], []
        for before, after in zip(record.steps, record.steps[ahead:], strict=False):
            there = torch.isin(after["where"], before["where"])
            squares = (after["rows"][after["leader"]] * record.each(after["scales"])).square()
            again.append(float(there.float().mean()))
            mass.append(float(squares[there].sum() / squares.sum()))
        rows.append([str(ahead), f"{sum(again) / len(again):.4f}", f"{sum(mass) / len(mass):.4f}"])
    title = "Indices of a step that are the leader's again, and the share of its squared values there"
    return Table("h", title, ["steps later", "indices", "squares"], rows)
