"""run.json: the settings and the results of a run, as reports read them."""

import json
import subprocess
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import thinwire

SCHEMA = 1
FILE = "run.json"
MOST_BYTES = 100_000  # of a file
FEWEST_POINTS = 50  # of a history, even if the file is too long
CONSENSUS, WORST = "consensus", "worst_"  # metrics beside the workload's own, for replicas that differ


@cache
def commit() -> str | None:
    """The commit of thinwire's source tree, if it runs from one; cached, as code is loaded once."""
    source = Path(__file__).resolve().parents[2]
    try:
        log = subprocess.run(
            ["git", "-C", str(source), "log", "-1", "--format=%H", "--", "."],
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return log.stdout.strip() or None


@dataclass
class Run:
    """One training run. Bytes are those of the rank whose link carried the most."""

    workload: str
    method: str  # its notation
    ranks: int
    transport: str
    seed: int
    steps: int
    metrics: dict[str, float]
    bytes: dict[str, int]  # dense, payload, link; wire, if there was an interface counter to read
    ratio: float  # dense / payload
    seconds: dict[str, float]  # total, compute, encode, exchange, decode
    history: list[dict[str, float]]  # step, loss, payload_bytes, seconds
    evaluations: list[dict[str, float]] = field(default_factory=list)  # step, payload_bytes, seconds, and the metrics
    label: str = ""  # the user's name for the method
    variant: str = ""  # the baseline that it is, if it is one: "alone", "accumulate:8"
    best_step: int = 0  # the step of `metrics`: the best by validation, or the last; 0: unknown
    metric: str = "test_accuracy"  # the name of the metric that runs are compared by
    better: str = "higher"  # or "lower"
    link: str | None = None  # the link between the ranks; None: the machine's own network
    modeled: bool = False  # the time on the link was computed from bytes, not measured
    # Per kind of layer: tensors, elements, bytes per step.
    kinds: dict[str, dict[str, float]] = field(default_factory=dict)
    # Per layer: name, kind, elements; at each evaluation, bytes so far and norms (see docs/lab.md).
    layers: list[dict[str, Any]] = field(default_factory=list)
    # The rank whose link carried the most, and the bytes it sent to and received from each other rank.
    links: dict[str, Any] = field(default_factory=dict)
    # Low-rank layers: kinds, shapes, ranks at each change; the model's number of parameters at the end.
    factored: dict[str, Any] = field(default_factory=dict)
    # Groups of ranks, and the bytes that all ranks sent within and between them.
    groups: dict[str, Any] = field(default_factory=dict)
    # The server, if there is one: its rank, its link bytes, and the most link bytes of any other rank.
    server: dict[str, int] = field(default_factory=dict)
    # Learned codes: their errors by step, the intervals of learning, and the bytes in between.
    learned: dict[str, Any] = field(default_factory=dict)
    parameters: int = 0
    batch: int = 0  # examples per batch, over all ranks
    examples: int = 0  # per step: more with accumulated gradients, fewer for a rank alone; 0: the batch
    budget: str = ""
    threads: int = 1  # per rank
    shards: str = "iid"
    straggler: str | None = None  # RANK:FACTOR, if a rank was made slower than the others
    machine: dict[str, str] = field(default_factory=dict)
    source: str = ""  # a digest of the user's file, for a task from such a file
    plan: dict[str, Any] = field(default_factory=dict)  # all settings of the run
    tags: list[str] = field(default_factory=list)  # of the queue's entry
    took: dict[str, float] = field(default_factory=dict)  # seconds, evaluations included: wall, and cpu of all ranks
    # Each interruption: the step after which the run resumed, and the commit of the source tree from there on.
    resumed: list[dict[str, Any]] = field(default_factory=list)
    command: str = ""  # repeats the run
    warnings: list[str] = field(default_factory=list)
    schema: int = SCHEMA
    version: str = thinwire.__version__
    commit: str | None = field(default_factory=commit)

    def save(self, folder: Path) -> Path:
        return self.write(folder / FILE)

    def write(self, path: Path) -> Path:
        """Write the run as a file of at most `MOST_BYTES`."""
        first = {"schema": self.schema, "version": self.version, "commit": self.commit}
        write_atomically(path, _compact(first | asdict(self)))
        return path

    @classmethod
    def load(cls, path: Path) -> "Run":
        try:
            stored: dict[str, Any] = json.loads(path.read_text())
        except (OSError, json.JSONDecodeError) as error:
            raise ValueError(f"{path} cannot be read as a run: {error}") from None
        if not isinstance(stored, dict) or stored.get("schema") != SCHEMA:
            raise ValueError(f"{path} is not a run of schema {SCHEMA}")
        try:
            return cls(**stored)
        except TypeError as error:
            raise ValueError(f"{path} is not a run of schema {SCHEMA}: {error}") from None


def validation_name(metric: str) -> str:
    """The name of a metric when it is measured on the validation examples."""
    return f"validation_{metric.removeprefix('test_')}"


def write_atomically(path: Path, text: str) -> None:
    """Write a file under another name first: after a full disk or a kill, the file is complete or missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    try:
        unfinished.write_text(text)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _compact(stored: dict[str, Any]) -> str:
    """A run as JSON, one line per field. If it is too long, merge points of the curve, then drop small layers."""
    while len(text := _as_json(stored)) > MOST_BYTES:
        if len(stored["history"]) > FEWEST_POINTS:
            stored = stored | {"history": _halved(stored["history"])}
        elif stored["layers"]:
            smallest = min(stored["layers"], key=lambda layer: layer["elements"])
            stored = stored | {"layers": [layer for layer in stored["layers"] if layer is not smallest]}
        else:
            break
    return text


def _as_json(stored: dict[str, Any]) -> str:
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in stored.items()) + "\n}\n"


def _halved(history: list[dict[str, float]]) -> list[dict[str, float]]:
    """Merge pairs of points: the second of each, with the mean loss of both."""
    pairs = [history[i : i + 2] for i in range(0, len(history), 2)]
    ends = [0, *(pair[-1]["step"] for pair in pairs)]
    merged = []
    for pair, start in zip(pairs, ends, strict=False):
        steps = [pair[0]["step"] - start, pair[-1]["step"] - pair[0]["step"]]
        total = sum(point["loss"] * count for point, count in zip(pair, steps, strict=False))
        merged.append(pair[-1] | {"loss": round(total / sum(steps), 6)})
    return merged
