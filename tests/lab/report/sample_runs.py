"""Runs with figures that can be checked by hand."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from thinwire.lab.recording.runs import Run

STEPS = 100
SECONDS = {"total": 20.0, "compute": 8.0, "encode": 2.0, "exchange": 9.0, "decode": 1.0}
NOTATIONS = {
    "dense": "Average()",
    "fp16": "Average(Cast('float16'))",
    "powersgd": "ErrorFeedback(PowerSGD(4))",
    "<b>&tiny": "ErrorFeedback(TopK(0.01))",
}


def a_run(
    label: str = "dense",
    seed: int = 1,
    accuracy: float = 0.9,
    seconds: float = 20.0,
    ratio: float = 1.0,
    evaluated: bool = True,
    **changes: Any,
) -> Run:
    """A run of `seconds` seconds whose accuracy grows linearly to `accuracy` over four evaluations."""
    payload = round(1_000_000 * STEPS / ratio)
    shares = (0.25, 0.5, 0.75, 1.0)
    settings: dict[str, Any] = {
        "workload": "digits-cnn",
        "method": NOTATIONS.get(label, "Sign()"),
        "label": label,
        "ranks": 4,
        "transport": "processes",
        "link": "100mbit",
        "seed": seed,
        "steps": STEPS,
        "metrics": {"test_accuracy": accuracy, "test_loss": 0.5},
        "bytes": {"dense": 1_000_000 * STEPS, "payload": payload, "link": payload * 3 // 2, "wire": payload * 8 // 5},
        "ratio": 1_000_000 * STEPS / payload,
        "seconds": {part: spent * seconds / 20.0 for part, spent in SECONDS.items()},
        "history": [
            {"step": s, "loss": 2.0 / s, "payload_bytes": payload * s // STEPS, "seconds": seconds * s / STEPS}
            for s in range(1, STEPS + 1)
        ],
        "evaluations": [
            {
                "step": round(STEPS * share),
                "payload_bytes": round(payload * share),
                "seconds": seconds * share,
                "test_accuracy": accuracy * share,
                "test_loss": 0.5 / share,
            }
            for share in shares
        ]
        if evaluated
        else [],
        "kinds": {
            "conv": {"tensors": 4, "elements": 200_000, "dense": 800_000, "payload": 0.6 * payload / STEPS},
            "small ones": {"tensors": 9, "elements": 50_000, "dense": 200_000, "payload": 0.4 * payload / STEPS},
        },
        "parameters": 250_000,
        "batch": 128,
        "budget": "small",
        "machine": {"processor": "Abacus & Sons", "cores": "2"},
        "command": f"thinwire train --method '{label}' --seed {seed}",
        "commit": "0123abc",
    }
    return Run(**(settings | changes))


def a_layer(
    name: str,
    kind: str = "conv",
    elements: int = 100,
    payload: Sequence[int] = (10, 20, 30, 40),
    residual: Sequence[float | None] = (1.0, 2.0, 3.0, 4.0),
    gradient: float = 2.0,
) -> dict[str, Any]:
    """A layer in a run file, with figures at four evaluations."""
    return {
        "name": name,
        "kind": kind,
        "elements": elements,
        "dense_bytes": [100 * elements * i for i in (1, 2, 3, 4)],
        "payload_bytes": list(payload),
        "residual": list(residual),
        "gradient": [gradient] * 4,
    }


def layered(label: str, many: bool = False, **changes: Any) -> Run:
    """A run with records of 3 layers, or of 24 with long names."""
    no_residual: dict[str, Any] = {"residual": [None] * 4}
    layers = [
        a_layer("features.0.weight", elements=1000, payload=(1000, 1500, 1750, 1875)),
        a_layer("dense", "dense", 4000),
        a_layer("features.0.bias,dense.bias", "small ones", 9, **no_residual),
    ]
    if many:
        blocks = [(f"encoder.layers.{i}", name) for i in range(6) for name in ("self_attn.out_proj", "linear1")]
        kinds = {"self_attn.out_proj": "attention", "linear1": "dense"}
        layers += [a_layer(f"{block}.{name}.weight", kinds[name], 5000 + i) for i, (block, name) in enumerate(blocks)]
        layers += [a_layer(f"encoder.norms.{i}.weight", "norm", 10, **no_residual) for i in range(9)]
    return a_run(label, layers=layers, **changes)


def decentralized_run(
    label: str,
    worst: float = 0.85,
    distances: Sequence[float] = (0.04, 0.03, 0.02, 0.01),
    traffic: tuple[Mapping[str, int], Mapping[str, int]] | None = None,
    **changes: Any,
) -> Run:
    """A run whose replicas differ, with a consensus distance per evaluation; rank 0 exchanges with ranks 1 and 3."""
    run = a_run(label, **changes)
    for evaluation, distance in zip(run.evaluations, distances, strict=True):
        evaluation["consensus"] = distance
    run.metrics |= {"consensus": distances[-1], f"worst_{run.metric}": worst}
    run.evaluations[-1] |= {f"worst_{run.metric}": worst}
    sent, received = traffic or ({"1": 500_000, "3": 500_000},) * 2
    run.links = {"rank": 0, "sent": sent, "received": received}
    return run


def comparison() -> list[Run]:
    """Three seeds of four methods: dense, a faster one, one as good with fewer bytes, one that is worse."""
    runs = []
    for seed, offset in ((1, 0.0), (2, 0.01), (3, -0.01)):
        runs.append(a_run("dense", seed, 0.9 + offset, 20.0))
        runs.append(a_run("fp16", seed, 0.9 + offset, 16.0, 2.0))
        runs.append(a_run("powersgd", seed, 0.9 + offset, 10.0, 40.0))
        runs.append(a_run("<b>&tiny", seed, 0.8 + offset, 12.5, 125.0, warnings=["a warning with <markup>"]))
    return runs


def saved(folder: Path, runs: list[Run]) -> Path:
    for number, run in enumerate(runs):
        run.save(folder / f"method-{number % 4}" / f"seed-{run.seed}" / str(number))
    return folder
