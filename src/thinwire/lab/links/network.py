"""Commands that run within a network of namespaces."""

import os
import subprocess
import sys

from thinwire.lab.links import holder
from thinwire.lab.links.link import Link


class LinkError(ValueError):
    """A link cannot be made here; the message tells why."""


def wrapped(command: list[str], link: Link, ranks: int) -> list[str]:
    """The command line that runs a command in a network with a namespace for each rank.

    It has to be started by this process. Whatever it started is killed when the thread that started it ends, or when
    it is killed itself. Asked to end, by SIGINT, SIGTERM or SIGHUP, it asks the command.
    """
    parent = os.readlink("/proc/self")
    limited = "".join("1" if link.is_limited(rank) else "0" for rank in range(ranks))
    return [sys.executable, "-P", holder.__file__, parent, str(link.down), str(link.up), limited, *command]


def possible() -> str | None:
    """Why no link can be made here, or None where one can: it makes one to see."""
    if sys.platform != "linux":
        return f"a link needs Linux's network namespaces, and this is {sys.platform}"
    tried = subprocess.run(wrapped(["true"], Link(10**8, 10**8), 1), capture_output=True, text=True, check=False)
    return refusal(tried) if tried.returncode else None


def refusal(ended: subprocess.CompletedProcess[str]) -> str:
    """The reason that a command in a network gave as it failed."""
    said = ended.stderr.strip().splitlines() or [f"it ended with exit code {ended.returncode}"]
    return said[-1].removeprefix("thinwire: ")
