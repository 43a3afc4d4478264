"""What replicas can ask of each other, over nests of tensors."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..codecs import Identity
from ..core import Envelope, Message, Peers, Rounds
from ..core.precision import working
from ..transports import Post, Transport
from ..wire import payload
from .contract import Contract, called_at
from .nests import Nest, leaves, like_numbers, mapped, rebuilt, told

REAL = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
Tensors = list[Tensor]
Item = TypeVar("Item")


class Primitives:
    """All replicas call the same ones in the same order, with the same structure and shapes.

    Gradients flow through sums, means, gathered values and broadcasts, from every replica to every other.
    """

    def __init__(self, transport: Transport, contract: Contract) -> None:
        self._transport, self._contract = transport, contract

    @property
    def rank(self) -> int:
        """The number of this replica."""
        return self._transport.rank

    @property
    def num_replicas(self) -> int:
        return self._transport.size

    def all_sum(self, value: Nest) -> Nest:
        """The sum over all replicas, in the order of their ranks."""
        return self._together("all_sum", value, self._sum, self._sum)

    def all_mean(self, value: Nest) -> Nest:
        """The mean over all replicas: each counts alike. `weighted_mean` counts examples."""
        return like_numbers(value, self._together("all_mean", mapped(_as_real, value), self._mean, self._mean))

    def weighted_mean(self, value: Nest, weight: float | Tensor) -> Nest:
        """The mean over all replicas, each with a weight such as its number of examples."""
        # Sums of 16-bit numbers, times their weights, may be more than these can tell.
        types = [_as_real(x).dtype for x in leaves(value)]
        counted = torch.as_tensor(weight, dtype=torch.float64)

        def times(x: Tensor) -> Tensor:
            x, count = _as_real(x), counted.to(x.device)
            x = x.to(working(x.dtype))
            return torch.where(count != 0, x * count, torch.zeros_like(x))  # the mean of nothing may be NaN

        weighted = mapped(times, value)
        sums, total = self._together("weighted_mean", (weighted, counted), self._sum, self._sum)
        means = [(x / total.to(x.device)).to(dtype) for x, dtype in zip(leaves(sums), types, strict=True)]
        return like_numbers(value, rebuilt(value, iter(means)))

    def all_min(self, value: Nest) -> Nest:
        """The least over all replicas, entry by entry; no gradients flow."""
        return self._together("all_min", value, lambda xs: [x.amin(0) for x in self._stacked(xs)])

    def all_max(self, value: Nest) -> Nest:
        """The largest over all replicas, entry by entry; no gradients flow."""
        return self._together("all_max", value, lambda xs: [x.amax(0) for x in self._stacked(xs)])

    def all_gather(self, value: Nest) -> Nest:
        """What all replicas have, stacked along a new first axis."""

        def back(gradients: Tensors) -> Tensors:
            return [total[self.rank] for total in self._sum(gradients)]

        return self._together("all_gather", value, self._stacked, back, numbers=False)

    def broadcast(self, value: Nest, source: int = 0) -> Nest:
        """What one replica has; the others give something of the same structure and shapes."""
        if not 0 <= source < self.num_replicas:
            raise ValueError(f"there is no replica {source} to broadcast from, only 0 to {self.num_replicas - 1}")

        def forth(xs: Tensors) -> Tensors:
            here = [x.detach().contiguous() for x in xs]
            counts = [int(r == source) for r in range(self.num_replicas)]
            return [x[0] for x in self._joined([x[None][: counts[self.rank]] for x in here], counts)]

        def back(gradients: Tensors) -> Tensors:
            totals = self._sum(gradients)
            return totals if self.rank == source else [torch.zeros_like(x) for x in totals]

        return self._together(f"broadcast from {source}", value, forth, back)

    def gather_notes(self, note: Any) -> list[Any]:
        """What all replicas have noted, in the order of their ranks: anything that can be written as JSON."""
        mine = torch.frombuffer(bytearray(json.dumps(note).encode()), dtype=torch.uint8)
        self._contract.check("gather_notes")
        with self._contract.held():
            counts = self._stacked([torch.tensor(mine.numel())])[0].tolist()
            told = self._joined([mine], counts)[0].split(counts)  # type: ignore[no-untyped-call]  # torch's is untyped
        return [json.loads(bytes(note.tolist())) for note in told]

    def barrier(self) -> None:
        """Wait for all replicas."""
        self._contract.check("barrier")
        if not self._contract.compares:  # else all of them were heard
            with self._contract.held():
                self._stacked([torch.zeros((), dtype=torch.uint8)])

    def map_gather(self, act: Callable[[Item], Nest], items: Sequence[Item]) -> list[Nest]:
        """What a function makes of each item, in order, on every replica; the items are spread over the replicas."""
        results, mine = self._mapped("map_gather", act, items)
        if len(items) == 0:
            return []
        counts = [len(_share(len(items), r, self.num_replicas)) for r in range(self.num_replicas)]
        stacked = [torch.stack(xs) for xs in zip(*map(leaves, results[: len(mine)]), strict=True)]
        stacked = stacked or [x.new_empty((0, *x.shape)) for x in leaves(results[0])]
        with self._contract.held():
            gathered = self._joined(stacked, counts)
        rows: list[Iterator[Tensor]] = [iter([x[i] for x in gathered]) for i in range(len(items))]
        return [like_numbers(results[0], rebuilt(results[0], row)) for row in rows]

    def map_reduce(self, act: Callable[[Item], Nest], items: Sequence[Item], reduce: str = "sum") -> Nest:
        """The "sum", "mean", "min" or "max" of what a function makes of all items, which are spread over the replicas.

        Each replica adds up its own before they are exchanged, so last bits depend on how many there are.
        """
        kinds = {"sum": self.all_sum, "mean": self.all_sum, "min": self.all_min, "max": self.all_max}
        if reduce not in kinds:
            raise ValueError(f"map_reduce takes {', '.join(map(repr, kinds))}, not {reduce!r}")
        if len(items) == 0:
            raise ValueError("map_reduce needs an item at least: the outcome of none has no structure")
        results, mine = self._mapped("map_reduce", act, items)
        stacked = [torch.stack(xs) for xs in zip(*map(leaves, results), strict=True)]
        if reduce in ("min", "max"):
            ours = [x.amin(0) if reduce == "min" else x.amax(0) for x in stacked]
        else:
            stacked = [_countable(x) for x in stacked]
            # Sums of 16-bit numbers may be more than these can tell, where means are not.
            sums = [_folded(x[: len(mine)].to(_wide(x.dtype))) for x in stacked]
            ours = [_as_real(x) / len(items) for x in sums] if reduce == "mean" else sums
            ours = [x.to(y.dtype) if y.is_floating_point() else x for x, y in zip(ours, stacked, strict=True)]
        return like_numbers(results[0], rebuilt(results[0], iter(kinds[reduce](ours))))

    def _mapped(self, what: str, act: Callable[[Item], Nest], items: Sequence[Item]) -> tuple[list[Nest], range]:
        """The outcomes of this replica's items, and which these are. Who has none tries one, to know the structure."""
        mine = _share(len(items), self.rank, self.num_replicas)
        results = [act(items[i]) for i in mine or range(min(1, len(items)))]
        structures = [told(result) for result in results]
        unlike = next((i for i, structure in enumerate(structures) if structure != structures[0]), None)
        if unlike is not None:
            raise ValueError(
                f"{what} takes a function whose outcomes are alike; of item {mine[0]} it is {structures[0]}, and of "
                f"item {mine[unlike]} it is {structures[unlike]}"
            )
        self._contract.check(what, f"{len(items)} items to {structures[0] if structures else 'nothing'}")
        return results, mine

    def _together(
        self,
        what: str,
        value: Nest,
        forth: Callable[[Tensors], Tensors],
        back: Callable[[Tensors], Tensors] | None = None,
        numbers: bool = True,
    ) -> Nest:
        xs, site = leaves(value), called_at()
        self._contract.check(what, f"of {told(value)}", site)
        flows = back is not None and torch.is_grad_enabled() and any(x.requires_grad for x in xs)
        if flows:

            def checked_back(gradients: Tensors) -> Tensors:
                assert back is not None, "else nothing flows"
                self._contract.check(f"backward of {what}", f"of {told(value)}", site)
                with self._contract.held():
                    return back(gradients)

            with self._contract.held():
                made = _Flowing.apply(forth, checked_back, *xs)  # type: ignore[no-untyped-call]  # torch's is untyped
        else:
            with torch.no_grad(), self._contract.held():
                made = forth([x.detach() for x in xs])
        outcome = rebuilt(value, iter(made))
        return like_numbers(value, outcome) if numbers else outcome

    def _sum(self, xs: Tensors) -> Tensors:
        return self._added(xs, 1.0)

    def _mean(self, xs: Tensors) -> Tensors:
        return self._added(xs, 1 / self.num_replicas)

    def _added(self, xs: Tensors, weight: float) -> Tensors:
        """Real numbers are summed up shard by shard on the way, others where they arrive."""
        real = [i for i, x in enumerate(xs) if x.dtype in REAL and x.numel()]
        others = [i for i in range(len(xs)) if i not in real]
        peers = Peers("replicas", tuple((r, weight) for r in range(self.num_replicas)))
        found: dict[int, Tensor] = {}
        if real:
            here = [xs[i].detach().contiguous().to(self._transport.device) for i in real]
            totals = self._transport.run(_sums(peers, here))
            found = {i: total.to(xs[i].device) for i, total in zip(real, totals, strict=True)}
        stacked = self._stacked([_countable(xs[i]) for i in others]) if others else []
        for i, rows in zip(others, stacked, strict=True):
            total = _folded(rows)
            found[i] = total if weight == 1 else total * weight
        return [found[i] for i in range(len(xs))]

    def _stacked(self, xs: Tensors) -> Tensors:
        """What all replicas have, stacked."""
        return self._joined([x[None] for x in xs], [1] * self.num_replicas)

    def _joined(self, xs: Tensors, counts: Sequence[int]) -> Tensors:
        """The rows that all replicas have, in the order of their ranks; each has so many."""
        if not xs:
            return []
        here = [x.detach().contiguous() for x in xs]
        others = [r for r in range(self.num_replicas) if r != self.rank]
        row = [x.shape[1:].numel() * x.itemsize for x in here]
        sizes = {r: [nbytes * counts[r] for nbytes in row] for r in others}
        mine = torch.cat([x.flatten().view(torch.uint8) for x in here]).to(self._transport.device)
        outgoing = dict.fromkeys(others, mine) if mine.numel() else {}
        heard = self._transport.deliver_counted(Post(outgoing, {r: sum(n) for r, n in sizes.items() if sum(n)}, {}))
        found: list[Tensors] = []
        for r in range(self.num_replicas):
            pieces = [] if r == self.rank else payload.split(heard.get(r, mine[:0]), sizes[r])
            heard_rows = [_read(p, x, counts[r]) for p, x in zip(pieces, here, strict=False)]
            found.append(here if r == self.rank else heard_rows)
        return [torch.cat(pieces) for pieces in zip(*found, strict=True)]


class _Flowing(torch.autograd.Function):
    """An exchange whose gradients are exchanged, too."""

    @staticmethod
    def forward(ctx: Any, forth: Callable[[Tensors], Tensors], back: Callable[[Tensors], Tensors], *xs: Tensor) -> Any:
        made = forth([x.detach() for x in xs])
        ctx.back, ctx.real = back, [x.is_floating_point() or x.is_complex() for x in made]
        ctx.mark_non_differentiable(*(x for x, real in zip(made, ctx.real, strict=True) if not real))
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        found = iter(ctx.back([g for g, real in zip(gradients, ctx.real, strict=True) if real]))
        return None, None, *(next(found) if real else None for real in ctx.real)


def _sums(peers: Peers, xs: Tensors) -> Rounds:
    replies = yield [Envelope(peers, Message(x, Identity(), unit="replicas")) for x in xs]
    return [reply.reduced.clone() for reply in replies]


def _share(items: int, rank: int, ranks: int) -> range:
    """The items of a rank, beside each other."""
    return range(rank * items // ranks, (rank + 1) * items // ranks)


def _countable(x: Tensor) -> Tensor:
    """What can be added up: as in torch's own sums, whole numbers of all types become those of 64 bits."""
    return x if x.is_floating_point() or x.is_complex() else x.to(torch.int64)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return working(dtype) if dtype.is_floating_point else dtype


def _as_real(x: Tensor) -> Tensor:
    return x if x.is_floating_point() or x.is_complex() else x.to(torch.float64)


def _folded(xs: Tensor) -> Tensor:
    """The sum of its rows, one after the other."""
    total = torch.zeros_like(xs[0]) if len(xs) else xs.new_zeros(xs.shape[1:])
    for x in xs:
        total = total + x
    return total


def _read(data: Tensor, like: Tensor, rows: int) -> Tensor:
    """So many rows, from bytes. Numbers of several bytes have to begin where such numbers may."""
    return data.clone().view(like.dtype).view(rows, *like.shape[1:]).to(like.device)
