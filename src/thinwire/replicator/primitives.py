"""Collectives over all replicas, on nested structures of tensors and numbers."""

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
from .nests import Nest, description, leaves, like_numbers, mapped, rebuilt

REAL = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
Tensors = list[Tensor]
Item = TypeVar("Item")


class Primitives:
    """Collectives. All replicas must call the same ones in the same order, with the same structures and shapes.

    Gradients flow through sums, means, gathered values and broadcasts, from every replica to every other.
    """

    def __init__(self, transport: Transport, contract: Contract) -> None:
        self._transport, self._contract = transport, contract

    @property
    def rank(self) -> int:
        """The rank of this replica."""
        return self._transport.rank

    @property
    def num_replicas(self) -> int:
        return self._transport.size

    def all_sum(self, value: Nest) -> Nest:
        """The sum over all replicas, in the order of their ranks."""
        return self._collective("all_sum", value, self._sum, self._sum)

    def all_mean(self, value: Nest) -> Nest:
        """The mean over all replicas, with equal weights. `weighted_mean` takes weights."""
        return like_numbers(value, self._collective("all_mean", mapped(_as_real, value), self._mean, self._mean))

    def weighted_mean(self, value: Nest, weight: float | Tensor) -> Nest:
        """The mean over all replicas, each with a weight such as its number of examples."""
        # Weighted sums of 16-bit numbers may overflow, so they are computed in 32 bits.
        dtypes = [_as_real(x).dtype for x in leaves(value)]
        weight = torch.as_tensor(weight, dtype=torch.float64)

        def weighted(x: Tensor) -> Tensor:
            x, factor = _as_real(x), weight.to(x.device)
            x = x.to(working(x.dtype))
            return torch.where(factor != 0, x * factor, torch.zeros_like(x))  # with weight 0, x may be NaN

        sums, total = self._collective("weighted_mean", (mapped(weighted, value), weight), self._sum, self._sum)
        means = [(x / total.to(x.device)).to(dtype) for x, dtype in zip(leaves(sums), dtypes, strict=True)]
        return like_numbers(value, rebuilt(value, iter(means)))

    def all_min(self, value: Nest) -> Nest:
        """The minimum over all replicas, entry by entry; no gradients flow."""
        return self._collective("all_min", value, lambda xs: [x.amin(0) for x in self._stacked(xs)])

    def all_max(self, value: Nest) -> Nest:
        """The maximum over all replicas, entry by entry; no gradients flow."""
        return self._collective("all_max", value, lambda xs: [x.amax(0) for x in self._stacked(xs)])

    def all_gather(self, value: Nest) -> Nest:
        """The values of all replicas, stacked along a new first axis."""

        def backward(gradients: Tensors) -> Tensors:
            return [total[self.rank] for total in self._sum(gradients)]

        return self._collective("all_gather", value, self._stacked, backward, numbers=False)

    def broadcast(self, value: Nest, source: int = 0) -> Nest:
        """The value of one replica; the others pass a value of the same structure and shapes."""
        if not 0 <= source < self.num_replicas:
            raise ValueError(f"there is no replica {source} to broadcast from, only 0 to {self.num_replicas - 1}")

        def forward(xs: Tensors) -> Tensors:
            mine = [x.detach().contiguous() for x in xs]
            counts = [int(r == source) for r in range(self.num_replicas)]
            return [x[0] for x in self._concatenated([x[None][: counts[self.rank]] for x in mine], counts)]

        def backward(gradients: Tensors) -> Tensors:
            totals = self._sum(gradients)
            return totals if self.rank == source else [torch.zeros_like(x) for x in totals]

        return self._collective(f"broadcast from {source}", value, forward, backward)

    def gather_notes(self, note: Any) -> list[Any]:
        """The notes of all replicas, in the order of the ranks: anything that JSON can represent."""
        mine = torch.frombuffer(bytearray(json.dumps(note).encode()), dtype=torch.uint8)
        self._contract.check("gather_notes")
        with self._contract.guarded():
            counts = self._stacked([torch.tensor(mine.numel())])[0].tolist()
            notes = self._concatenated([mine], counts)[0].split(counts)  # type: ignore[no-untyped-call]  # in torch
        return [json.loads(bytes(text.tolist())) for text in notes]

    def barrier(self) -> None:
        """Wait for all replicas."""
        self._contract.check("barrier")
        if not self._contract.compares:  # otherwise the comparison has waited for all
            with self._contract.guarded():
                self._stacked([torch.zeros((), dtype=torch.uint8)])

    def map_gather(self, act: Callable[[Item], Nest], items: Sequence[Item]) -> list[Nest]:
        """The function's results for all items, in order, on every replica. The items are divided over the replicas."""
        results, mine = self._mapped("map_gather", act, items)
        if len(items) == 0:
            return []
        counts = [len(_share(len(items), r, self.num_replicas)) for r in range(self.num_replicas)]
        stacked = [torch.stack(xs) for xs in zip(*map(leaves, results[: len(mine)]), strict=True)]
        stacked = stacked or [x.new_empty((0, *x.shape)) for x in leaves(results[0])]
        with self._contract.guarded():
            gathered = self._concatenated(stacked, counts)
        rows: list[Iterator[Tensor]] = [iter([x[i] for x in gathered]) for i in range(len(items))]
        return [like_numbers(results[0], rebuilt(results[0], row)) for row in rows]

    def map_reduce(self, act: Callable[[Item], Nest], items: Sequence[Item], reduce: str = "sum") -> Nest:
        """The "sum", "mean", "min" or "max" of the function's results; the items are divided over the replicas.

        Each replica reduces its own results first, so the last bits depend on the number of replicas.
        """
        kinds = {"sum": self.all_sum, "mean": self.all_sum, "min": self.all_min, "max": self.all_max}
        if reduce not in kinds:
            raise ValueError(f"map_reduce takes {', '.join(map(repr, kinds))}, not {reduce!r}")
        if len(items) == 0:
            raise ValueError("map_reduce needs at least one item: without a result, the structure is unknown")
        results, mine = self._mapped("map_reduce", act, items)
        stacked = [torch.stack(xs) for xs in zip(*map(leaves, results), strict=True)]
        if reduce in ("min", "max"):
            reduced = [x.amin(0) if reduce == "min" else x.amax(0) for x in stacked]
        else:
            stacked = [_summable(x) for x in stacked]
            # Sums of 16-bit numbers may overflow where their means do not, so they are computed in 32 bits.
            sums = [_row_sum(x[: len(mine)].to(_wide(x.dtype))) for x in stacked]
            reduced = [_as_real(x) / len(items) for x in sums] if reduce == "mean" else sums
            reduced = [x.to(y.dtype) if y.is_floating_point() else x for x, y in zip(reduced, stacked, strict=True)]
        return like_numbers(results[0], rebuilt(results[0], iter(kinds[reduce](reduced))))

    def _mapped(self, call: str, act: Callable[[Item], Nest], items: Sequence[Item]) -> tuple[list[Nest], range]:
        """This replica's results, and the range of their items. Without items, it computes one for the structure."""
        mine = _share(len(items), self.rank, self.num_replicas)
        results = [act(items[i]) for i in mine or range(min(1, len(items)))]
        structures = [description(result) for result in results]
        unlike = next((i for i, structure in enumerate(structures) if structure != structures[0]), None)
        if unlike is not None:
            raise ValueError(
                f"{call} takes a function whose results have one structure; for item {mine[0]} it is {structures[0]}, "
                f"for item {mine[unlike]} it is {structures[unlike]}"
            )
        self._contract.check(call, f"{len(items)} items to {structures[0] if structures else 'nothing'}")
        return results, mine

    def _collective(
        self,
        call: str,
        value: Nest,
        forward: Callable[[Tensors], Tensors],
        backward: Callable[[Tensors], Tensors] | None = None,
        numbers: bool = True,
    ) -> Nest:
        xs, site = leaves(value), called_at()
        self._contract.check(call, f"of {description(value)}", site)
        differentiable = backward is not None and torch.is_grad_enabled() and any(x.requires_grad for x in xs)
        if differentiable:

            def checked_backward(gradients: Tensors) -> Tensors:
                assert backward is not None, "differentiable implies it"
                self._contract.check(f"backward of {call}", f"of {description(value)}", site)
                with self._contract.guarded():
                    return backward(gradients)

            with self._contract.guarded():
                results = _Differentiable.apply(forward, checked_backward, *xs)  # type: ignore[no-untyped-call]  # in torch
        else:
            with torch.no_grad(), self._contract.guarded():
                results = forward([x.detach() for x in xs])
        nest = rebuilt(value, iter(results))
        return like_numbers(value, nest) if numbers else nest

    def _sum(self, xs: Tensors) -> Tensors:
        return self._added(xs, 1.0)

    def _mean(self, xs: Tensors) -> Tensors:
        return self._added(xs, 1 / self.num_replicas)

    def _added(self, xs: Tensors, weight: float) -> Tensors:
        """The weighted sum: floats by the transport's all-reduce; integers and complex numbers after a gather."""
        real = [i for i, x in enumerate(xs) if x.dtype in REAL and x.numel()]
        others = [i for i in range(len(xs)) if i not in real]
        peers = Peers("replicas", tuple((r, weight) for r in range(self.num_replicas)))
        totals: dict[int, Tensor] = {}
        if real:
            mine = [xs[i].detach().contiguous().to(self._transport.device) for i in real]
            sums = self._transport.run(_sums(peers, mine))
            totals = {i: total.to(xs[i].device) for i, total in zip(real, sums, strict=True)}
        stacked = self._stacked([_summable(xs[i]) for i in others]) if others else []
        for i, rows in zip(others, stacked, strict=True):
            total = _row_sum(rows)
            totals[i] = total if weight == 1 else total * weight
        return [totals[i] for i in range(len(xs))]

    def _stacked(self, xs: Tensors) -> Tensors:
        """The tensors of all replicas, stacked in the order of the ranks."""
        return self._concatenated([x[None] for x in xs], [1] * self.num_replicas)

    def _concatenated(self, xs: Tensors, counts: Sequence[int]) -> Tensors:
        """The rows of all replicas, in the order of the ranks; rank r has `counts[r]` rows."""
        if not xs:
            return []
        local = [x.detach().contiguous() for x in xs]
        others = [r for r in range(self.num_replicas) if r != self.rank]
        row = [x.shape[1:].numel() * x.itemsize for x in local]
        sizes = {r: [nbytes * counts[r] for nbytes in row] for r in others}
        mine = torch.cat([x.flatten().view(torch.uint8) for x in local]).to(self._transport.device)
        outgoing = dict.fromkeys(others, mine) if mine.numel() else {}
        received = self._transport.deliver_counted(Post(outgoing, {r: sum(n) for r, n in sizes.items() if sum(n)}, {}))
        by_rank: list[Tensors] = []
        for r in range(self.num_replicas):
            pieces = [] if r == self.rank else payload.split(received.get(r, mine[:0]), sizes[r])
            rows = [_read(p, x, counts[r]) for p, x in zip(pieces, local, strict=False)]
            by_rank.append(local if r == self.rank else rows)
        return [torch.cat(pieces) for pieces in zip(*by_rank, strict=True)]


class _Differentiable(torch.autograd.Function):
    """An exchange whose backward pass exchanges gradients."""

    @staticmethod
    def forward(
        ctx: Any, exchange: Callable[[Tensors], Tensors], back: Callable[[Tensors], Tensors], *xs: Tensor
    ) -> Any:
        results = exchange([x.detach() for x in xs])
        ctx.back, ctx.real = back, [x.is_floating_point() or x.is_complex() for x in results]
        ctx.mark_non_differentiable(*(x for x, real in zip(results, ctx.real, strict=True) if not real))
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        results = iter(ctx.back([g for g, real in zip(gradients, ctx.real, strict=True) if real]))
        return None, None, *(next(results) if real else None for real in ctx.real)


def _sums(peers: Peers, xs: Tensors) -> Rounds:
    replies = yield [Envelope(peers, Message(x, Identity(), unit="replicas")) for x in xs]
    return [reply.reduced.clone() for reply in replies]


def _share(items: int, rank: int, ranks: int) -> range:
    """The contiguous range of items of a rank."""
    return range(rank * items // ranks, (rank + 1) * items // ranks)


def _summable(x: Tensor) -> Tensor:
    """As in torch.sum, integers and booleans become 64-bit integers."""
    return x if x.is_floating_point() or x.is_complex() else x.to(torch.int64)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return working(dtype) if dtype.is_floating_point else dtype


def _as_real(x: Tensor) -> Tensor:
    return x if x.is_floating_point() or x.is_complex() else x.to(torch.float64)


def _row_sum(xs: Tensor) -> Tensor:
    """The sum of the rows, added in order."""
    total = torch.zeros_like(xs[0]) if len(xs) else xs.new_zeros(xs.shape[1:])
    for x in xs:
        total = total + x
    return total


def _read(data: Tensor, like: Tensor, rows: int) -> Tensor:
    """Rows from bytes, copied because view() needs aligned storage."""
    return data.clone().view(like.dtype).view(rows, *like.shape[1:]).to(like.device)
