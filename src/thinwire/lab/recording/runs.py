"""run.json: what a run was and what came of it, in a form that later commands read."""

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
FEWEST_POINTS = 50  # of a history, however long the rest is
CONSENSUS, WORST = "consensus", "worst_"  # what is noted beside a workload's own metrics, where replicas differ


@cache
def commit() -> str | None:
    """The commit of thinwire's own source tree, if it runs from one; asked for once, as code is loaded once."""
    source = Path(__file__).resolve().parents[2]
    try:
        asked = subprocess.run(
            ["git", "-C", str(source), "log", "-1", "--format=%H", "--", "."],
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return asked.stdout.strip() or None


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
    bytes: dict[str, int]  # dense, payload, link; wire, where it was read from an interface's counters
    ratio: float  # dense / payload
    seconds: dict[str, float]  # total, compute, encode, exchange, decode
    history: list[dict[str, float]]  # step, loss, payload_bytes, seconds
    evaluations: list[dict[str, float]] = field(default_factory=list)  # step, payload_bytes, seconds, and the metrics
    label: str = ""  # what the user called the method
    variant: str = ""  # what tells it from plain training with the method: "alone", "accumulate:8"
    best_step: int = 0  # the step whose metrics these are: the best by validation, or the last; 0: not told
    metric: str = "test_accuracy"  # the one of the metrics that runs are compared by
    better: str = "higher"  # or "lower"
    link: str | None = None  # the link between the ranks, if not the machine's own
    modeled: bool = False  # the time on the link was computed from bytes, not measured
    # Per kind of layer: tensors, elements, bytes a step.
    kinds: dict[str, dict[str, float]] = field(default_factory=dict)
    # Per layer: name, kind, elements; at each evaluation, bytes so far and norms (see docs/lab.md).
    layers: list[dict[str, Any]] = field(default_factory=list)
    # Of the rank whose link carried the most: its number, and the bytes it sent to and received from each other rank.
    links: dict[str, Any] = field(default_factory=dict)
    # Of layers that are factored at times: kinds, shapes, ranks at each change; how many parameters it has in the end.
    factored: dict[str, Any] = field(default_factory=dict)
    # Groups of ranks, and the bytes that all ranks sent within and between them.
    groups: dict[str, Any] = field(default_factory=dict)
    # Where one rank serves: its number, the bytes its link carried, and the most that any other's did.
    server: dict[str, int] = field(default_factory=dict)
    # Of learned codes: how far off they were by step, the stretches of learning, and the bytes between these.
    learned: dict[str, Any] = field(default_factory=dict)
    parameters: int = 0
    batch: int = 0  # examples that all ranks compute gradients of at once
    examples: int = 0  # used in a step: more if gradients are accumulated, fewer if a rank is alone; 0: the batch
    budget: str = ""
    threads: int = 1  # of each rank
    shards: str = "iid"
    straggler: str | None = None  # RANK:FACTOR, if a rank was made slower than the others
    machine: dict[str, str] = field(default_factory=dict)
    source: str = ""  # a digest of the user's own file, for a task that is one
    plan: dict[str, Any] = field(default_factory=dict)  # all that fixes the run
    tags: list[str] = field(default_factory=list)  # of a queue's entry
    took: dict[str, float] = field(default_factory=dict)  # seconds with evaluations: wall, and cpu of all ranks
    # Each interruption: after which step the run went on, and the commit of the source tree from there on.
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
        write_whole(path, _compact(first | asdict(self)))
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
    """What a metric is called when it is measured on the validation part."""
    return f"validation_{metric.removeprefix('test_')}"


def write_whole(path: Path, text: str) -> None:
    """Write a file under another name first: a full disk or a kill leaves the whole file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    try:
        unfinished.write_text(text)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _compact(stored: dict[str, Any]) -> str:
    """A run as JSON, a line a field. If it is too long, its curve gets thinner, then its smallest layers go."""
    while len(text := _as_json(stored)) > MOST_BYTES:
        if len(stored["history"]) > FEWEST_POINTS:
            stored = stored | {"history": _thinned(stored["history"])}
        elif stored["layers"]:
            smallest = min(stored["layers"], key=lambda layer: layer["elements"])
            stored = stored | {"layers": [layer for layer in stored["layers"] if layer is not smallest]}
        else:
            break
    return text


def _as_json(stored: dict[str, Any]) -> str:
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in stored.items()) + "\n}\n"


def _thinned(history: list[dict[str, float]]) -> list[dict[str, float]]:
    """Every second point, and the last; a loss is the mean over both stretches."""
    pairs = [history[i : i + 2] for i in range(0, len(history), 2)]
    ends = [0, *(pair[-1]["step"] for pair in pairs)]
    thin = []
    for pair, start in zip(pairs, ends, strict=False):
        steps = [pair[0]["step"] - start, pair[-1]["step"] - pair[0]["step"]]
        total = sum(point["loss"] * count for point, count in zip(pair, steps, strict=False))
        thin.append(pair[-1] | {"loss": round(total / sum(steps), 6)})
    return thin
