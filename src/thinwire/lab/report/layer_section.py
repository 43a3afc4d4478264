"""The layers of a method's runs as curves: grouped so that they can be told apart, with short names."""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import hypot, isnan, nan
from typing import Any

from thinwire.lab.recording.runs import Run
from thinwire.lab.report.charts import curves, svg
from thinwire.lab.report.charts.curves import Curve, Track
from thinwire.lab.report.names import MOST_LETTERS
from thinwire.lab.report.summary import Entry

MOST, LARGEST = 9, 5  # up to MOST layers are all shown; of more, the LARGEST ones are, and the others by kind
SHARING = ("small ones", "joined ones")  # kinds of fused tensors, which share messages
BYTES = ("dense_bytes", "payload_bytes")
Layer = dict[str, Any]  # a layer in a run file
Values = Callable[[list[Layer]], list[float]]  # a figure of some layers together, at each evaluation


@dataclass(frozen=True)
class Group:
    """What one curve shows: a layer, or several layers of a kind."""

    label: str
    kind: str
    names: tuple[str, ...]


def groups(layers: list[Layer]) -> list[Group]:
    """Each layer, if there are few; else the layers with the most elements, and the others by kind."""
    shown, others = layers, defaultdict[str, list[Layer]](list)
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
    """Short unique labels for parameter names; `kinds` has the kind of each."""
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
    label = f"{count} other {kind}"
    return label if len(label) <= MOST_LETTERS else f"{count} {kind}"


def _short(name: str) -> str:
    """Drop leading modules and the suffix of a name that is too long; the number of a block stays."""
    if len(name) > MOST_LETTERS:
        name = name.removesuffix(".weight")
    while len(name) > MOST_LETTERS and "." in name and not name[0].isdigit():
        name = name.partition(".")[2]
    return name if len(name) <= MOST_LETTERS else f"{name[:6]}…{name[7 - MOST_LETTERS :]}"


def ratios(layers: list[Layer]) -> list[float]:
    """The compression ratio between each evaluation and the one before."""
    dense, sent = ([sum(at) for at in zip(*(layer[what] for layer in layers), strict=True)] for what in BYTES)
    intervals = zip(pairwise([0, *dense]), pairwise([0, *sent]), strict=True)
    return [(d1 - d0) / (s1 - s0) if s1 > s0 else nan for (d0, d1), (s0, s1) in intervals]


def residual(layers: list[Layer]) -> list[float]:
    """The norm of the residual over that of the gradient, of the layers that have a residual at that evaluation."""
    found = []
    for i in range(len(layers[0]["residual"])):
        known = [layer for layer in layers if layer["residual"][i] is not None]
        gradient = hypot(*(layer["gradient"][i] for layer in known))
        found.append(hypot(*(layer["residual"][i] for layer in known)) / gradient if gradient else nan)
    return found


def with_residual(run: Run) -> list[Layer]:
    """The layers that have a residual at one evaluation or more."""
    return [layer for layer in run.layers if any(norm is not None for norm in layer["residual"])]


def lines(entry: Entry, values: Values) -> list[tuple[Group, Curve]]:
    """One curve per group, by step: the mean over the runs that recorded their layers."""

    def track(run: Run, group: Group) -> Track:
        figures = values([layer for layer in run.layers if layer["name"] in group.names])
        steps = (evaluation["step"] for evaluation in run.evaluations)
        return {step: (step, value) for step, value in zip(steps, figures, strict=True) if not isnan(value)}

    runs = [run for run in entry.runs if with_residual(run)]
    found = [
        (group, Curve(group.label, curves.averaged([track(run, group) for run in runs]), []))
        for group in (groups(with_residual(runs[0])) if runs else [])
    ]
    return [(group, curve) for group, curve in found if curve.mean]
