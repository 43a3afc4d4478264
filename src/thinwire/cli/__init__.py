"""The command line: arguments in, the lab's answers out."""

import sys
from collections.abc import Sequence

from rich.console import Console

from ..lab.comparison import Failed
from ..lab.processes import RanksError
from .arguments import parser

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        options.run(options, Console())
    except (ValueError, RanksError, Failed) as error:
        print(f"thinwire: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # such as a full disk
        where = f"{error.filename}: " if error.filename else ""
        print(f"thinwire: {where}{error.strerror or error}; runs that were finished are kept", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("thinwire: interrupted; runs that were finished are kept", file=sys.stderr)
        return 130
    return 0
