"""Exchanges between groups at the end and at the beginning of a factored phase."""

from collections.abc import Mapping
from math import isnan

import torch
from torch import Tensor

from ...core import Replica, Rounds
from ...core.lazy import is_finite
from ...core.outcome import NonFinite
from ...kernels.low_rank_product import aligned
from ...topologies import Groups, within
from ..broadcasts import averaged, broadcast
from . import FactoredModel
from .factored_model import FactorableLayer

SYNCS = ("only-learned", "with-stale", "full", "only-b")
SYNC = "syncs and splits"  # the meter's key for these bytes


def factored_model_of(replica: Replica) -> FactoredModel:
    if not isinstance(replica.prepared, FactoredModel):
        raise ValueError("ABTraining changes layers, so it needs a model and an optimizer, from thinwire.prepared(...)")
    return replica.prepared


def agreed(
    replica: Replica, sync: str, groups: Groups, which: str, full: dict[str, Tensor], more: dict[str, Tensor] | None
) -> Rounds:
    """Returns the full-rank parameters that all groups agree on; this rank trains the factor `which`.

    `full` has this rank's full-rank parameters and is overwritten. `more` is overwritten by its mean over all ranks.
    """
    sync = "only-b" if len(groups) == 1 and sync == "only-learned" else sync
    factorable = [entry for entry in factored_model_of(replica).factorable if entry.rank is not None]
    factors = {entry.names[w]: getattr(entry, w).detach().clone() for entry in factorable for w in "ab"}
    weights = [entry.names["weight"] for entry in factorable]
    if sync == "only-learned":
        yield from _learned(replica, factorable, factors, groups, which)
    sent = {name: x for name, x in full.items() if sync == "full" or name not in weights}
    if sync == "with-stale":
        sent |= factors
    elif sync == "only-b":
        sent |= {entry.names["b"]: factors[entry.names["b"]] for entry in factorable}
    yield from within(tuple(range(replica.size)), averaged(sent | (more or {}), replica.size), SYNC)
    for entry in factorable if sync != "full" else ():
        product = aligned(factors[entry.names["a"]]) @ aligned(factors[entry.names["b"]])
        full[entry.names["weight"]] = product.view(entry.module.full_shape)
    return full


def _learned(
    replica: Replica, factorable: list[FactorableLayer], factors: dict[str, Tensor], groups: Groups, which: str
) -> Rounds:
    """The ranks that trained a factor average it, and broadcast it to the others."""
    half = (len(groups) + 1) // 2
    halves = groups[:half], groups[half:]
    teams = [tuple(sorted(rank for ranks in part for rank in ranks)) for part in halves]
    team = teams[which == "b"]
    learned = {entry.names[which]: factors[entry.names[which]] for entry in factorable}
    yield from within(team, averaged(learned, len(team)), SYNC)
    sources = {entry.names[w]: teams[w == "b"][0] for entry in factorable for w in "ab"}
    yield from within(tuple(range(replica.size)), broadcast(factors, sources, replica.size), SYNC)


def split(replica: Replica, cutoff: float, moments: str) -> Rounds:
    """Rank 0 factors all weights and broadcasts the factors: an SVD is unique only up to signs and rotations.

    Returns the weights that are not finite.
    """
    factorable = factored_model_of(replica).factorable
    here = [
        entry.decomposed(cutoff) if replica.rank == 0 and is_finite(entry.matrix()) else None for entry in factorable
    ]
    device = factorable[0].weight.device
    counts = {
        "": torch.tensor([float(x[0].shape[1]) if x else torch.nan for x in here], dtype=torch.float64, device=device)
    }
    yield from broadcast(counts, {"": 0}, replica.size)
    ranks = counts[""].tolist()
    nonfinite = [entry.names["weight"] for entry, rank in zip(factorable, ranks, strict=True) if isnan(rank)]
    if nonfinite:
        return (NonFinite(tuple(nonfinite), (), "parameters"),)
    factors: dict[str, Tensor] = {}
    names: list[str] = []
    for entry, rank, mine in zip(factorable, map(int, ranks), here, strict=True):
        rows, columns = entry.shape
        empty = entry.weight.new_empty(rows, rank), entry.weight.new_empty(rank, columns)
        factors |= dict(zip((entry.names["a"], entry.names["b"]), mine or empty, strict=True))
        names += [entry.names["a"], entry.names["b"]]
    yield from broadcast(factors, dict.fromkeys(names, 0), replica.size)
    for entry in factorable:
        entry.split(factors[entry.names["a"]], factors[entry.names["b"]], moments)
    return ()


def not_finite(tensors: Mapping[str, Tensor]) -> tuple[NonFinite, ...]:
    return tuple(NonFinite((name,), (), "parameters") for name, x in tensors.items() if not is_finite(x))
