"""A script, run once for each rank, in one process."""

import importlib.util
import os
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

import torch

from ..transports import InProcessCluster


def as_ranks(ranks: int) -> NoReturn:
    """Run the script that this process was started with again, as so many ranks, and end with it."""
    main = sys.modules["__main__"]
    path = getattr(main, "__file__", None)
    if path is None or getattr(main, "__spec__", None) is not None:
        raise ValueError(
            f"{ranks} replicas in one process are made by running the script once for each, and there is no script: "
            "use `thinwire run`, or torchrun"
        )
    run_script(path, ranks)
    raise SystemExit(0)


def check_not_imported() -> None:
    """RuntimeError while a module is imported: ranks of one process share it, and one would wait for it forever."""
    frame: FrameType | None = sys._getframe(1)
    module = ""
    while frame is not None:
        if frame.f_code.co_name == "<module>":
            module = frame.f_globals["__name__"]
        if frame.f_code.co_name == "_find_and_load" and frame.f_code.co_filename.startswith("<frozen importlib"):
            raise RuntimeError(
                f"a Replicator is made while {module} is imported, and ranks in one process share what modules hold: "
                "make it in the script itself, or in a function that the script calls"
            )
        frame = frame.f_back


def run_script(path: str | Path, ranks: int | None = None) -> None:
    """Run a script as `__main__`: as so many ranks in this process, or as the rank that this process is.

    The first error of any rank is raised.
    """
    before, threads = sys.modules["__main__"], int(os.environ.get("OMP_NUM_THREADS", 1))  # as torchrun would have it

    def one() -> None:
        if ranks is not None:  # the bits of a product depend on the threads that it was computed with
            torch.set_num_threads(threads)
        spec = importlib.util.spec_from_file_location("__main__", path)
        if spec is None or spec.loader is None:
            raise ValueError(f"{path} is not a Python script")
        module = importlib.util.module_from_spec(spec)
        module.__spec__ = None  # as of a script
        sys.modules["__main__"] = module
        try:
            spec.loader.exec_module(module)
        except SystemExit as end:
            if end.code not in (None, 0):
                raise RuntimeError(f"{Path(path).name} ended with {end.code!r}") from None

    try:
        if ranks is None:
            one()
        else:
            InProcessCluster(ranks).run(one)
    finally:
        sys.modules["__main__"] = before
