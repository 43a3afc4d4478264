"""Topologies by short name or by notation."""

from difflib import get_close_matches

import thinwire
from thinwire import extend

KINDS: dict[str, extend.Topology] = {
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


def named(text: str) -> extend.Topology:
    name = OTHER_NAMES.get(text, text)
    if name in KINDS:
        return KINDS[name]
    if "(" not in text:
        raise ValueError(f"unknown topology {text!r} ({_hint(text)})")
    built = thinwire.parse(text)
    if not isinstance(built, extend.Topology):
        raise ValueError(f"{text!r} describes {built!r}, which is not a topology (known: {', '.join(KINDS)})")
    return built


def _hint(text: str) -> str:
    own = get_close_matches(text.capitalize(), OWN, n=1, cutoff=0.8)
    if own:
        return f"write it with its settings: {OWN[own[0]]}"
    near = get_close_matches(text.lower().replace("_", "-"), [*KINDS, *OTHER_NAMES], n=1)
    return (
        f"did you mean {near[0]!r}?" if near else f"known: {', '.join(KINDS)}, or a notation such as 'Exponential(2)'"
    )
