from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..codecs import Identity, TopK
from ..codecs.leader_positions import LeaderPositions, root_mean_square
from ..core import Codec, Conversation, Message, Parameter, Reducer, Reply, broadcast_from
from ..core.lazy import Lazy, is_finite, materialize
from ..core.precision import working
from ..kernels.sparse_tensor import SparseTensor
from .average import STRIDE, Average, as_reducer
from .learned import Learned

CLAMP = 1e4  # largest magnitude of a value, in units of its layer's scale


class LeaderTopKState(NamedTuple):
    step: int
    seed: int
    where: Tensor  # the current positions, the same on all ranks
    inner: Any


@dataclass(frozen=True, repr=False)
class LeaderTopK(Reducer):
    """ScaleCom's CLT-k (Chen et al., 2020), cyclic local top-k: one rank's top-k positions serve for all ranks.

    Each step, the leader sends the positions of its largest entries; every rank sends its values there, so that they
    can be all-reduced. The leader changes every `hold` steps. Values are divided by the leader's scale of their layer
    and sent in one conversation for all layers. It keeps no residual: put `ErrorFeedback` or `DGC` around it.
    """

    ratio: float = 0.001  # of a layer's entries; lower: fewer bytes
    values: Codec | Learned = Identity()  # compression of the values
    least: int = 10  # positions per layer, at least
    order: str | None = None  # of a layer's values: by "index", the leader's "value" or "magnitude"; None: by `values`
    hold: int = 1  # steps between selections; higher: fewer bytes for positions, and less accurate ones
    ends: bool = False  # include the model's first and last matrix; else the first is dense, the last plain top-k
    sizes: tuple[int, ...] = ()  # elements of each layer; set for a model
    ranks: tuple[int, ...] = (0,)  # the leaders, in turn; set for a model

    def __post_init__(self) -> None:
        if isinstance(self.values, Average):  # the same as its codec alone
            object.__setattr__(self, "values", self.values.codec)
        if not isinstance(self.values, Codec | Learned):  # not ErrorFeedback: the next step has other positions
            raise ValueError(f"LeaderTopK(values=...) takes a codec, LGC(...) or LGCServer(...), not {self.values!r}")
        LeaderPositions(self.ratio, self.least, self._order)
        if not (isinstance(self.hold, int) and self.hold > 0):
            raise ValueError(f"LeaderTopK takes a hold of 1 step or more, not {self.hold!r}")
        if not isinstance(self.ends, bool):
            raise ValueError(f"LeaderTopK(ends=...) is True or False, not {self.ends!r}")

    @property
    def positions(self) -> LeaderPositions:
        return LeaderPositions(self.ratio, self.least, self._order, self.sizes)

    @property
    def _order(self) -> str:
        """An auto-encoder trains on sorted values; codecs need no order."""
        return self.order or ("value" if isinstance(self.values, Learned) else "index")

    def specialize(self, parameter: Parameter) -> Reducer:
        end = "" if self.ends else parameter.end
        if parameter.like.ndim < 2 or end == "first":
            return Average()
        if end == "last":
            return Average(TopK(min(1.0, max(self.ratio, self.least / max(1, parameter.like.numel())))))
        values = self.values
        if isinstance(values, Learned):
            values = values.for_leader(parameter, self.hold)
        return replace(self, values=values, ranks=parameter.ranks)

    def fuse(self, sizes: tuple[int, ...]) -> Reducer:
        return replace(self, sizes=sizes)

    def cycle(self, size: int) -> int:
        return size  # each rank leads in turn

    def init(self, like: Tensor, seed: int) -> LeaderTopKState:
        count = sum(self.positions.counts(like.numel()))
        values = torch.empty(count, dtype=working(like.dtype), device=like.device)
        no_positions = torch.empty(0, dtype=torch.int64, device=like.device)
        return LeaderTopKState(0, seed, no_positions, as_reducer(self.values).init(values, seed))

    def reduce(self, x: Tensor, state: LeaderTopKState) -> Conversation:
        turn, since = divmod(state.step, self.hold)
        leader = self.ranks[turn % len(self.ranks)]
        flat = x.to(working(x.dtype)).flatten()
        if since == 0:
            selected: Reply[Any] = yield Message(
                flat, self.positions, state.seed, route=broadcast_from(leader), lazy=True
            )
            where, scale = selected.reduced.where, selected.reduced.values
            mine = flat[where]
        else:
            where, counts = state.where, self.positions.counts(flat.numel())
            mine = flat[where]
            scales = torch.stack([root_mean_square(values) for values in torch.split(mine, counts)])
            shared = yield Message(scales, Identity(), state.seed, route=broadcast_from(leader))
            scale = torch.repeat_interleave(shared.reduced, torch.tensor(counts, device=flat.device))
        scale = torch.where(scale == 0, 1, scale)
        if not is_finite(flat):
            mine = torch.full_like(mine, torch.nan)  # the NaN may be at a position that is not sent
        # Where the leader's entries are far smaller than this rank's, values are clamped; the residual keeps the rest.
        values = (mine / scale).clamp(-CLAMP, CLAMP)
        reply, inner = yield from as_reducer(self.values).reduce(values, state.inner)
        sorted_, order = where.sort()

        def at_positions(values: Tensor | Lazy) -> SparseTensor:
            return SparseTensor((materialize(values) * scale)[order].to(x.dtype), sorted_, x)

        positions = where if self.hold > 1 else state.where
        return Reply(at_positions(reply.reduced), at_positions(reply.sent)), LeaderTopKState(
            state.step + 1, state.seed + STRIDE, positions, inner
        )

    def inner_states(self, state: LeaderTopKState) -> tuple[tuple[Reducer, Any], ...]:
        return ((as_reducer(self.values), state.inner),)
