"""A task from a user's file."""

import hashlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from thinwire.lab.tasks.workload import Workload


def task(text: str) -> Workload:
    """The task at `path/to/file.py:Name`: an instance, or a class that is called without arguments."""
    path, _, name = text.rpartition(":")
    if not name or not path.endswith(".py"):
        raise ValueError(f"{text!r} does not name the class of the task: write path/to/file.py:Name")
    file = Path(path).expanduser().resolve()
    if not file.is_file():
        raise ValueError(f"{path!r}: there is no such file")

    found = getattr(imported(file), name, None)
    if found is None:
        raise ValueError(f"{path} has nothing called {name!r}")
    if isinstance(found, type) and issubclass(found, Workload):
        if absent := sorted(found.__abstractmethods__):
            raise ValueError(f"{text}: {name} lacks {', '.join(absent)}")
        try:
            found = found()
        except Exception as error:
            raise ValueError(f"{text}: {name}() failed{where(error, file)}: {described(error)}") from error
    if not isinstance(found, Workload):
        raise ValueError(f"{text}: {name} is not a thinwire.lab.tasks.workload.Workload")
    if absent := [attribute for attribute in ("batch", "budgets") if not hasattr(found, attribute)]:
        raise ValueError(f"{text}: {name} lacks {', '.join(absent)}")
    return found


def digest(text: str) -> str:
    """A hash of the user's file; empty for a named task."""
    path, _, name = text.rpartition(":")
    if not name or not path.endswith(".py"):
        return ""
    return hashlib.sha256(Path(path).expanduser().read_bytes()).hexdigest()[:16]


def imported(file: Path) -> ModuleType:
    """The module in this file, imported once per process."""
    known = f"thinwire_own_{file.stem}_{abs(hash(file))}"
    if known in sys.modules:
        return sys.modules[known]
    spec = importlib.util.spec_from_file_location(known, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))  # as for a script, so that it can import modules beside it
    sys.modules[known] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[known]
        raise ValueError(f"{file} cannot be imported{where(error, file)}: {described(error)}") from error
    return module


def where(error: BaseException, file: Path) -> str:
    """The last line of this file in the traceback, in parentheses."""
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return f" (line {error.lineno})"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return f" (line {lines[-1]})" if lines else ""


def described(error: BaseException) -> str:
    message = error.msg if isinstance(error, SyntaxError) else error
    return f"{type(error).__name__}: {message}"
