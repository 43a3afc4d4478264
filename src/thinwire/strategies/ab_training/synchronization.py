"""What groups of ranks that train factors say to each other, at the end and at the beginning of their time."""

from collections.abc import Mapping
from math import isnan

import torch
from torch import Tensor

from ...core import Replica, Rounds
from ...core.lazy import is_finite
from ...core.outcome import NonFinite
from ...kernels.low_rank_product import aligned
from ...topologies import Groups, within
from ..broadcasts import averaged, told
from . import FactoredModel
from .factored_model import Bench

SYNCS = ("only-learned", "with-stale", "full", "only-b")
SYNC = "syncs and splits"  # what the meter counts bytes under


def workshop_of(replica: Replica) -> FactoredModel:
    if not isinstance(replica.factored_model, FactoredModel):
        raise ValueError("ABTraining changes layers: it needs a model and its optimizer, from thinwire.prepared(...)")
    return replica.factored_model


def agreed(
    replica: Replica, sync: str, groups: Groups, which: str, whole: dict[str, Tensor], more: dict[str, Tensor] | None
) -> Rounds:
    """All parameters as groups agree on them, in place of this rank's, which trains the factor `which`.

    `more` is overwritten by its mean.
    """
    sync = "only-b" if len(groups) == 1 and sync == "only-learned" else sync
    benches = [bench for bench in workshop_of(replica).benches if bench.rank is not None]
    factors = {bench.names[w]: getattr(bench, w).detach().clone() for bench in benches for w in "ab"}
    weights = [bench.names["weight"] for bench in benches]
    if sync == "only-learned":
        yield from _learned(replica, benches, factors, groups, which)
    said = {name: x for name, x in whole.items() if sync == "full" or name not in weights}
    if sync == "with-stale":
        said |= factors
    elif sync == "only-b":
        said |= {bench.names["b"]: factors[bench.names["b"]] for bench in benches}
    yield from within(tuple(range(replica.size)), averaged(said | (more or {}), replica.size), SYNC)
    for bench in benches if sync != "full" else ():
        product = aligned(factors[bench.names["a"]]) @ aligned(factors[bench.names["b"]])
        whole[bench.names["weight"]] = product.view(bench.layer.full_shape)
    return whole


def _learned(replica: Replica, benches: list[Bench], factors: dict[str, Tensor], groups: Groups, which: str) -> Rounds:
    """Those who trained a factor average it, and tell the others."""
    half = (len(groups) + 1) // 2
    teams = [tuple(sorted(rank for ranks in some for rank in ranks)) for some in (groups[:half], groups[half:])]
    mine = teams[which == "b"]
    learned = {bench.names[which]: factors[bench.names[which]] for bench in benches}
    yield from within(mine, averaged(learned, len(mine)), SYNC)
    sources = {bench.names[w]: teams[w == "b"][0] for bench in benches for w in "ab"}
    yield from within(tuple(range(replica.size)), told(factors, sources, replica.size), SYNC)


def split(replica: Replica, cutoff: float, moments: str) -> Rounds:
    """Rank 0 factors all weights, and tells all: elsewhere, signs and turns could come out differently.

    Returns what was lost.
    """
    benches = workshop_of(replica).benches
    here = [bench.decomposed(cutoff) if replica.rank == 0 and is_finite(bench.matrix()) else None for bench in benches]
    device = benches[0].weight.device
    counts = {
        "": torch.tensor([float(x[0].shape[1]) if x else torch.nan for x in here], dtype=torch.float64, device=device)
    }
    yield from told(counts, {"": 0}, replica.size)
    ranks = counts[""].tolist()
    wrong = [bench.names["weight"] for bench, rank in zip(benches, ranks, strict=True) if isnan(rank)]
    if wrong:
        return (NonFinite(tuple(wrong), (), "parameters"),)
    factors: dict[str, Tensor] = {}
    names: list[str] = []
    for bench, rank, mine in zip(benches, map(int, ranks), here, strict=True):
        rows, columns = bench.shape
        empty = bench.weight.new_empty(rows, rank), bench.weight.new_empty(rank, columns)
        factors |= dict(zip((bench.names["a"], bench.names["b"]), mine or empty, strict=True))
        names += [bench.names["a"], bench.names["b"]]
    yield from told(factors, dict.fromkeys(names, 0), replica.size)
    for bench in benches:
        bench.split(factors[bench.names["a"]], factors[bench.names["b"]], moments)
    return ()


def not_finite(tensors: Mapping[str, Tensor]) -> tuple[NonFinite, ...]:
    return tuple(NonFinite((name,), (), "parameters") for name, x in tensors.items() if not is_finite(x))
