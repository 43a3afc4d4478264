"""The command line: arguments in, the lab's answers out."""

import argparse
import os
import sys
from collections.abc import Sequence

from rich.console import Console

from .arguments import parser

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    said = list(sys.argv[1:] if arguments is None else arguments)
    own = said.index("--") if said[:1] == ["run"] and "--" in said else len(said)  # what follows is for the script
    options = parser().parse_args(said[:own], argparse.Namespace(rest=said[own + 1 :]))
    try:
        options.run(options, Console())
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:  # such as a full disk
        where = f"{error.filename}: " if error.filename else ""
        print(f"thinwire: {where}{error.strerror or error}; finished runs are kept", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("thinwire: interrupted; finished runs are kept, the same command resumes the rest", file=sys.stderr)
        return 130
    except _expected() as error:
        print(f"thinwire: {error}", file=sys.stderr)
        return 2
    return 0


def _expected() -> tuple[type[Exception], ...]:
    """The errors that are reported in one line. Called once there is an error, as the lab imports torch."""
    from ..lab.runner.comparison import Failed
    from ..lab.runner.processes import RanksError
    from ..lab.runner.scripts import ScriptError

    return ValueError, RanksError, ScriptError, Failed
