"""Runs the examples as a command would, in processes that have imported torch before."""

import io
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path

import torch

import thinwire

EXAMPLES = Path(__file__).parents[2] / "examples"


def printed(script: str, *arguments: str, ranks: int | None = None, method: str | None = None) -> str:
    """What an example prints: as so many ranks in this process, or as what this process is, be it alone or a rank."""
    torch.set_num_threads(1)
    before, sys.argv = (sys.argv, dict(os.environ)), [str(EXAMPLES / script), *arguments]
    os.environ.pop("OMP_NUM_THREADS", None)
    if method is not None:
        os.environ[thinwire.Replicator.VARIABLE] = method
    try:
        with redirect_stdout(io.StringIO()) as said:
            thinwire.run_script(EXAMPLES / script, ranks)
    finally:
        sys.argv, environment = before
        os.environ.clear()
        os.environ.update(environment)
    return said.getvalue()


def printed_by_rank(script: str, arguments: tuple[str, ...], method: str | None = None) -> str:
    """On a rank that is a process: `run` passes on arguments by their places."""
    return printed(script, *arguments, method=method)
