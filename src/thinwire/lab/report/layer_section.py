"""The layers of a method's runs, as lines: few enough to be told apart, with names that can be read."""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import hypot, nan
from typing import Any

from thinwire.lab.recording.runs import Run
from thinwire.lab.report.charts import curves, svg
from thinwire.lab.report.charts.curves import Curve, Track
from thinwire.lab.report.names import MOST_LETTERS
from thinwire.lab.report.summary import Entry

MOST, LARGEST = 9, 5  # layers that are all shown; how many of more than that are
SHARING = ("small ones", "joined ones")  # kinds of several tensors that share messages
BYTES = ("dense_bytes", "payload_bytes")
Told = dict[str, Any]  # what a run tells of a layer
Values = Callable[[list[Told]], list[float]]  # of some layers together, at each evaluation


@dataclass(frozen=True)
class Group:
    """What one line is about: a layer, or several of a kind."""

    label: str
    kind: str
    names: tuple[str, ...]


def groups(layers: list[Told]) -> list[Group]:
    """All layers, if they are few; else those of most elements, and the rest by kind."""
    shown, others = layers, defaultdict[str, list[Told]](list)
    if len(layers) > MOST:
        largest = sorted(layers, key=lambda layer: -layer["elements"])[:LARGEST]
        shown = [layer for layer in layers if layer in largest]
        for layer in layers:
            if layer not in largest:
                others[layer["kind"]].append(layer)
        shown += [layer for rest in others.values() if len(rest) == 1 for layer in rest]
    named = labels({layer["name"]: layer["kind"] for layer in shown})
    found = [Group(named[layer["name"]], layer["kind"], (layer["name"],)) for layer in shown]
    for kind, rest in others.items():
        if len(rest) > 1:
            names = tuple(layer["name"] for layer in rest)
            found.append(Group(_several(names, kind) if kind in SHARING else _others(len(rest), kind), kind, names))
    return found


def labels(kinds: dict[str, str]) -> dict[str, str]:
    """Short names, no two of them the same, from long ones and the kinds of what they name."""
    short = {name: _several((name,), kind) if "," in name else _short(name) for name, kind in kinds.items()}
    seen: Counter[str] = Counter()
    for name, label in short.items():
        seen[label] += 1
        if seen[label] > 1:
            short[name] = f"{svg.shortened(label, MOST_LETTERS - 3)} {seen[label]}"
    return short


def _several(names: tuple[str, ...], kind: str) -> str:
    return f"{sum(name.count(',') + 1 for name in names)} {kind}"


def _others(count: int, kind: str) -> str:
    said = f"{count} other {kind}"
    return said if len(said) <= MOST_LETTERS else f"{count} {kind}"


def _short(name: str) -> str:
    """Without what most names begin and end with, where it is too long; the number of a block stays."""
    if len(name) > MOST_LETTERS:
        name = name.removesuffix(".weight")
    while len(name) > MOST_LETTERS and "." in name and not name[0].isdigit():
        name = name.partition(".")[2]
    return name if len(name) <= MOST_LETTERS else f"{name[:6]}…{name[7 - MOST_LETTERS :]}"


def ratios(layers: list[Told]) -> list[float]:
    """How many times less was said than the gradients hold, in the stretch before each evaluation."""
    dense, said = ([sum(at) for at in zip(*(layer[what] for layer in layers), strict=True)] for what in BYTES)
    stretches = zip(pairwise([0, *dense]), pairwise([0, *said]), strict=True)
    return [(d1 - d0) / (s1 - s0) if s1 > s0 else nan for (d0, d1), (s0, s1) in stretches]


def residual(layers: list[Told]) -> list[float]:
    """How large what is left unsaid is, in gradients; while something is remembered."""
    found = []
    for i in range(len(layers[0]["residual"])):
        known = [layer for layer in layers if layer["residual"][i] is not None]
        gradient = hypot(*(layer["gradient"][i] for layer in known))
        found.append(hypot(*(layer["residual"][i] for layer in known)) / gradient if gradient else nan)
    return found


def remembering(run: Run) -> list[Told]:
    """The layers of which something is remembered, at least from some step on."""
    return [layer for layer in run.layers if any(norm is not None for norm in layer["residual"])]


def lines(entry: Entry, values: Values) -> list[tuple[Group, Curve]]:
    """A line a group, by step: the mean over those runs that tell."""

    def track(run: Run, group: Group) -> Track:
        told = values([layer for layer in run.layers if layer["name"] in group.names])
        steps = (noted["step"] for noted in run.evaluations)
        return {step: (step, value) for step, value in zip(steps, told, strict=True) if value == value}

    runs = [run for run in entry.runs if remembering(run)]
    found = [
        (group, Curve(group.label, curves.averaged([track(run, group) for run in runs]), []))
        for group in (groups(remembering(runs[0])) if runs else [])
    ]
    return [(group, curve) for group, curve in found if curve.mean]
