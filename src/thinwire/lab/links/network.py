"""Commands that run in a network of namespaces."""

import os
import subprocess
import sys

from thinwire.lab.links import holder
from thinwire.lab.links.link import Link


class LinkError(ValueError):
    """A link cannot be created here; the message gives the reason."""


def wrapped(command: list[str], link: Link, ranks: int) -> list[str]:
    """The command line that runs a command in a network with a namespace for each rank.

    It must be started by this process. All its processes are killed when the thread that started it ends, or when it
    is killed itself. It forwards SIGINT, SIGTERM and SIGHUP to the command.
    """
    parent = os.readlink("/proc/self")
    limited = "".join("1" if link.is_limited(rank) else "0" for rank in range(ranks))
    return [sys.executable, "-P", holder.__file__, parent, str(link.down), str(link.up), limited, *command]


def possible() -> str | None:
    """Why no link can be created here; None if one can. Creates one to find out."""
    if sys.platform != "linux":
        return f"a link needs Linux's network namespaces, and this is {sys.platform}"
    attempt = subprocess.run(wrapped(["true"], Link(10**8, 10**8), 1), capture_output=True, text=True, check=False)
    return refusal(attempt) if attempt.returncode else None


def refusal(ended: subprocess.CompletedProcess[str]) -> str:
    """The error of a command that failed in a network."""
    lines = ended.stderr.strip().splitlines() or [f"it ended with exit code {ended.returncode}"]
    return lines[-1].removeprefix("thinwire: ")
