"""Running a script in one process, once for each rank."""

import importlib.util
import os
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

import torch

from ..transports import InProcessCluster


def as_ranks(ranks: int) -> NoReturn:
    """Run the script of this process again, as `ranks` in-process ranks, and exit."""
    main = sys.modules["__main__"]
    path = getattr(main, "__file__", None)
    if path is None or getattr(main, "__spec__", None) is not None:
        raise ValueError(
            f"{ranks} replicas in one process need a script, which is run once for each, and there is none: "
            "use `thinwire run`, or torchrun"
        )
    run_script(path, ranks)
    raise SystemExit(0)


def check_not_imported() -> None:
    """RuntimeError during the import of a module: ranks in one process share modules, so others would wait forever."""
    frame: FrameType | None = sys._getframe(1)
    module = ""
    while frame is not None:
        if frame.f_code.co_name == "<module>":
            module = frame.f_globals["__name__"]
        if frame.f_code.co_name == "_find_and_load" and frame.f_code.co_filename.startswith("<frozen importlib"):
            raise RuntimeError(
                f"a Replicator is created while {module} is imported, but ranks in one process share imported modules: "
                "create it in the script itself, or in a function that the script calls"
            )
        frame = frame.f_back


def run_script(path: str | Path, ranks: int | None = None) -> None:
    """Run a script as `__main__`: as `ranks` in-process ranks, or, if None, as the one rank of this process.

    The first error of any rank is raised.
    """
    before, threads = sys.modules["__main__"], int(os.environ.get("OMP_NUM_THREADS", 1))  # torchrun's default

    def run_rank() -> None:
        if ranks is not None:  # the bits of a matrix product depend on the number of threads
            torch.set_num_threads(threads)
        spec = importlib.util.spec_from_file_location("__main__", path)
        if spec is None or spec.loader is None:
            raise ValueError(f"{path} is not a Python script")
        module = importlib.util.module_from_spec(spec)
        module.__spec__ = None  # as for a script
        sys.modules["__main__"] = module
        try:
            spec.loader.exec_module(module)
        except SystemExit as end:
            if end.code not in (None, 0):
                raise RuntimeError(f"{Path(path).name} ended with {end.code!r}") from None

    try:
        if ranks is None:
            run_rank()
        else:
            InProcessCluster(ranks).run(run_rank)
    finally:
        sys.modules["__main__"] = before
