"""Topologies as people say them: by a short name, or as a notation."""

from difflib import get_close_matches

import thinwire

KINDS: dict[str, thinwire.Topology] = {
    "ring": thinwire.Ring(),
    "torus": thinwire.Torus(),
    "star": thinwire.Star(),
    "complete": thinwire.Complete(),
    "hypercube": thinwire.Hypercube(),
    "exponential": thinwire.Exponential(),
    "random-regular": thinwire.RandomRegular(),
    "erdos-renyi": thinwire.ErdosRenyi(),
}
OTHER_NAMES = {"full": "complete"}
OWN = {"Edges": "'Edges(((0, 1), (1, 2)))'", "Weights": "'Weights(((0.5, 0.5), (0.5, 0.5)))'"}


def named(said: str) -> thinwire.Topology:
    name = OTHER_NAMES.get(said, said)
    if name in KINDS:
        return KINDS[name]
    if "(" not in said:
        raise ValueError(f"unknown topology {said!r} ({_hint(said)})")
    built = thinwire.parse(said)
    if not isinstance(built, thinwire.Topology):
        raise ValueError(f"{said!r} describes {built!r}, which is not a topology (known: {', '.join(KINDS)})")
    return built


def _hint(said: str) -> str:
    own = get_close_matches(said.capitalize(), OWN, n=1, cutoff=0.8)
    if own:
        return f"write it with its settings: {OWN[own[0]]}"
    near = get_close_matches(said.lower().replace("_", "-"), [*KINDS, *OTHER_NAMES], n=1)
    return (
        f"did you mean {near[0]!r}?" if near else f"known: {', '.join(KINDS)}, or a notation such as 'Exponential(2)'"
    )
