"""Reads the files of finished runs below a folder."""

from pathlib import Path

from thinwire.lab.recording.runs import FILE, Run
from thinwire.lab.report.layer_section import BYTES
from thinwire.lab.report.summary import PARTS

LAYER_FIELDS = {"name", "kind", "elements"}


def read(folder: Path) -> list[Run]:
    """All runs below a folder, in the order of their paths. Hidden folders are skipped: they have unfinished runs."""
    found = (path for pattern in (FILE, f"*.{FILE}") for path in folder.rglob(pattern))
    paths = sorted(path for path in found if not _is_hidden(path.relative_to(folder)))
    if not paths:
        raise ValueError(
            f"there are no runs in {folder}: a run is a file named {FILE} or NAME.{FILE}, at any depth below the "
            "folder, but not in a hidden folder"
        )
    return [_checked(path) for path in paths]


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _checked(path: Path) -> Run:
    run = Run.load(path)
    try:
        complete = run.steps > 0 and run.metric in run.metrics
        complete = (
            complete and {"dense", "payload", "link"} <= run.bytes.keys() and {"total", *PARTS} <= run.seconds.keys()
        )
        points = {len(layer[what]) for layer in run.layers for what in (*BYTES, "residual", "gradient")}
        complete = (
            complete and points <= {len(run.evaluations)} and all(layer.keys() >= LAYER_FIELDS for layer in run.layers)
        )
    except (AttributeError, KeyError, TypeError):
        complete = False
    if not complete:
        raise ValueError(f"{path} is not a complete run: steps, bytes, seconds, layers or {run.metric} are missing")
    return run
