"""The command line: parses arguments, calls the lab, prints its results."""

import argparse
import os
import sys
from collections.abc import Sequence

from rich.console import Console

from .arguments import parser

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    # Arguments of `run` after "--" belong to the script.
    end = given.index("--") if given[:1] == ["run"] and "--" in given else len(given)
    options = parser().parse_args(given[:end], argparse.Namespace(script_arguments=given[end + 1 :]))
    try:
        options.run(options, Console())
    except BrokenPipeError:  # the reader closed the pipe, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:  # such as a full disk
        path = f"{error.filename}: " if error.filename else ""
        print(f"thinwire: {path}{error.strerror or error}; finished runs are kept", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("thinwire: interrupted; finished runs are kept, the same command resumes", file=sys.stderr)
        return 130
    except _expected() as error:
        print(f"thinwire: {error}", file=sys.stderr)
        return 2
    return 0


def _expected() -> tuple[type[Exception], ...]:
    """The errors reported as one line. Called only after an error, because the lab imports torch."""
    from ..lab.runner.comparison import Failed
    from ..lab.runner.processes import RanksError
    from ..lab.runner.scripts import ScriptError

    return ValueError, RanksError, ScriptError, Failed
