"""The files of finished runs below a folder."""

from pathlib import Path

from thinwire.lab.recording.runs import FILE, Run
from thinwire.lab.report.layer_section import BYTES
from thinwire.lab.report.summary import PARTS

ABOUT = {"name", "kind", "elements"}  # of a layer


def read(folder: Path) -> list[Run]:
    """Every run below a folder, in the order of their paths; hidden folders hold what is not finished."""
    found = (path for pattern in (FILE, f"*.{FILE}") for path in folder.rglob(pattern))
    paths = sorted(path for path in found if not _is_hidden(path.relative_to(folder)))
    if not paths:
        raise ValueError(
            f"there are no runs in {folder}: a run is a file called {FILE} or NAME.{FILE}, in any folder below it that "
            "is not hidden"
        )
    return [_checked(path) for path in paths]


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


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
