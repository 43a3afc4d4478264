from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..codecs import Identity, TopK
from ..codecs.leader_positions import LeaderPositions, root_mean_square
from ..core import Codec, Conversation, Message, Parameter, Reducer, Reply
from ..core.lazy import Lazy, is_finite, materialize
from ..core.outcome import Learning
from ..core.precision import working
from ..kernels.sparse_tensor import SparseTensor
from .average import STRIDE, Average, as_reducer
from .learned import Learned

MOST = 1e4  # scales that a value may be large


class LeaderTopKState(NamedTuple):
    step: int
    seed: int
    where: Tensor  # the places that are held, the same on all ranks
    inner: Any


@dataclass(frozen=True, repr=False)
class LeaderTopK(Reducer):
    """All say what they have at the places of a leader's largest entries; every step, another rank leads.

    Values are divided by a scale of their layer, the leader's, and said in one conversation for all layers. It keeps
    nothing of what is not said: that is for `ErrorFeedback` or `DGC` around it.
    """

    ratio: float = 0.001  # of a layer's entries; lower: less is sent
    values: Codec | Learned = Identity()  # what all say them through
    least: int = 10  # entries of a layer
    order: str | None = None  # of a layer's values: "index", the leader's "value" or "magnitude"; None: as they need it
    hold: int = 1  # steps for which places stay; higher: they cost less, and are less those that matter
    ends: bool = False  # whether the model's first and last matrix are led, too; else dense, and top-k on its own
    sizes: tuple[int, ...] = ()  # of the layers; set for a model
    ranks: tuple[int, ...] = (0,)  # that lead; set for a model

    def __post_init__(self) -> None:
        if isinstance(self.values, Average):  # which a codec alone stands for
            object.__setattr__(self, "values", self.values.codec)
        if not isinstance(self.values, Codec | Learned):  # what remembered values would add them up at other places
            raise ValueError(f"LeaderTopK says values through a codec, LGC(...) or LGCServer(...), not {self.values!r}")
        LeaderPositions(self.ratio, self.least, self._order)
        if not (isinstance(self.hold, int) and self.hold > 0):
            raise ValueError(f"LeaderTopK holds places for 1 step or more, not {self.hold!r}")
        if not isinstance(self.ends, bool):
            raise ValueError(f"LeaderTopK leads both ends or not: True or False, not {self.ends!r}")

    @property
    def places(self) -> LeaderPositions:
        return LeaderPositions(self.ratio, self.least, self._order, self.sizes)

    @property
    def _order(self) -> str:
        """What is learned is learned from values that are sorted, and nothing else needs an order."""
        return self.order or ("value" if isinstance(self.values, Learned) else "index")

    def specialize(self, parameter: Parameter) -> Reducer:
        end = "" if self.ends else parameter.end
        if parameter.like.ndim < 2 or end == "first":
            return Average()
        if end == "last":
            return Average(TopK(min(1.0, max(self.ratio, self.least / max(1, parameter.like.numel())))))
        values = self.values
        if isinstance(values, Learned):
            values = values.led(parameter, self.hold)
        return replace(self, values=values, ranks=parameter.ranks)

    def fuse(self, sizes: tuple[int, ...]) -> Reducer:
        return replace(self, sizes=sizes)

    def init(self, like: Tensor, seed: int) -> LeaderTopKState:
        count = sum(self.places.counts(like.numel()))
        values = torch.empty(count, dtype=working(like.dtype), device=like.device)
        nowhere = torch.empty(0, dtype=torch.int64, device=like.device)
        return LeaderTopKState(0, seed, nowhere, as_reducer(self.values).init(values, seed))

    def reduce(self, x: Tensor, state: LeaderTopKState) -> Conversation:
        turn, since = divmod(state.step, self.hold)
        leader = self.ranks[turn % len(self.ranks)]
        flat = x.to(working(x.dtype)).flatten()
        if since == 0:
            told: Reply[Any] = yield Message(flat, self.places, state.seed, source=leader, lazy=True)
            where, scale = told.reduced.where, told.reduced.values
            mine = flat[where]
        else:
            where, counts = state.where, self.places.counts(flat.numel())
            mine = flat[where]
            scales = torch.stack([root_mean_square(values) for values in torch.split(mine, counts)])
            said = yield Message(scales, Identity(), state.seed, source=leader)
            scale = torch.repeat_interleave(said.reduced, torch.tensor(counts, device=flat.device))
        scale = torch.where(scale == 0, 1, scale)
        if not is_finite(flat):
            mine = torch.full_like(mine, torch.nan)  # wherever it is, all have to hear of it
        # A leader may have next to nothing where others have much: that is said in parts, and the rest stays unsaid.
        values = (mine / scale).clamp(-MOST, MOST)
        reply, inner = yield from as_reducer(self.values).reduce(values, state.inner)
        sorted_, turns = where.sort()

        def spread(values: Tensor | Lazy) -> SparseTensor:
            return SparseTensor((materialize(values) * scale)[turns].to(x.dtype), sorted_, x)

        held = where if self.hold > 1 else state.where
        return Reply(spread(reply.reduced), spread(reply.sent)), LeaderTopKState(
            state.step + 1, state.seed + STRIDE, held, inner
        )

    def learning(self, state: LeaderTopKState) -> Learning | None:
        return as_reducer(self.values).learning(state.inner)
