"""Runs the example scripts as a command would, in processes that have already imported torch."""

import io
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path

import torch

import thinwire

EXAMPLES = Path(__file__).parents[2] / "examples"


def printed(script: str, *arguments: str, ranks: int | None = None, method: str | None = None) -> str:
    """The output of an example, run as `ranks` ranks in this process; if None, as the one rank of this process."""
    torch.set_num_threads(1)
    before, sys.argv = (sys.argv, dict(os.environ)), [str(EXAMPLES / script), *arguments]
    os.environ.pop("OMP_NUM_THREADS", None)
    if method is not None:
        os.environ[thinwire.Replicator.VARIABLE] = method
    try:
        with redirect_stdout(io.StringIO()) as output:
            thinwire.run_script(EXAMPLES / script, ranks)
    finally:
        sys.argv, environment = before
        os.environ.clear()
        os.environ.update(environment)
    return output.getvalue()


def printed_by_rank(script: str, arguments: tuple[str, ...], method: str | None = None) -> str:
    """As `printed`, for a rank that is a process: `run` passes positional arguments only."""
    return printed(script, *arguments, method=method)
