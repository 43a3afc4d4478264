from pathlib import Path

from thinwire.lab.report.layers import BYTES
from thinwire.lab.report.summary import PARTS
from thinwire.lab.runs import Run

ABOUT = {"name", "kind", "elements"}  # of a layer


def read(folder: Path) -> list[Run]:
    """Every run below a folder, in the order of their paths."""
    paths = sorted(folder.rglob("run.json"))
    if not paths:
        raise ValueError(f"there are no runs in {folder}: a run is a file called run.json, in any folder below it")
    return [_checked(path) for path in paths]


def _checked(path: Path) -> Run:
    run = Run.load(path)
    try:
        whole = run.steps > 0 and run.metric in run.metrics
        whole = whole and {"dense", "payload", "link"} <= run.bytes.keys() and {"total", *PARTS} <= run.seconds.keys()
        points = {len(layer[what]) for layer in run.layers for what in (*BYTES, "residual", "gradient")}
        whole = whole and points <= {len(run.evaluations)} and all(layer.keys() >= ABOUT for layer in run.layers)
    except (AttributeError, KeyError, TypeError):
        whole = False
    if not whole:
        raise ValueError(
            f"{path} is not a whole run: its steps, its bytes, its seconds, its layers or its {run.metric} are missing"
        )
    return run
