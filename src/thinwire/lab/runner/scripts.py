"""A script of one replica, run as many: in one process, or in as many as there are ranks."""

import os
import subprocess
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

import thinwire
from thinwire.lab import links
from thinwire.lab.runner.plan import TRANSPORTS


class ScriptError(RuntimeError):
    """A script did not come to its end; what went wrong has been printed."""


def run(
    script: Path,
    arguments: Sequence[str],
    ranks: int,
    transport: str = "processes",
    method: str | None = None,
    link: str | None = None,
) -> None:
    """Run a script as so many ranks, and pass on what it prints."""
    if not script.is_file():
        raise ValueError(f"there is no script {script}")
    if ranks < 1:
        raise ValueError(f"a script runs as 1 rank or more, not {ranks!r}")
    if transport not in TRANSPORTS:
        raise ValueError(f"the transport is one of {', '.join(TRANSPORTS)}, not {transport!r}")
    if link is not None and transport == "simulated":
        raise ValueError("ranks of one process have no link between them: leave out --link, or use processes")
    said = {} if method is None else {thinwire.Replicator.VARIABLE: method}
    if method is not None:
        thinwire.strategy_of(method)  # before anything is started
    if transport == "simulated":
        _in_one_process(script, arguments, ranks, said)
    else:
        _in_processes(script, arguments, ranks, link, said)


def _in_one_process(script: Path, arguments: Sequence[str], ranks: int, said: dict[str, str]) -> None:
    before, path, environment = sys.argv, sys.path[:], dict(os.environ)
    sys.argv, sys.path[0:0] = [str(script), *arguments], [str(script.resolve().parent)]
    os.environ.update(said)
    try:
        thinwire.run_script(script, ranks)
    except Exception as error:  # whatever a script raises is its user's to see
        traceback.print_exception(error)
        raise ScriptError(f"{script} failed: {type(error).__name__}: {error}") from None
    finally:
        sys.argv, sys.path[:] = before, path
        os.environ.clear()
        os.environ.update(environment)


def _in_processes(script: Path, arguments: Sequence[str], ranks: int, link: str | None, said: dict[str, str]) -> None:
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command = [*start, str(script), *arguments]
    if link is not None:
        inside = [*start, "-m", "thinwire.lab.runner.scripts", str(script), *arguments]
        command = links.wrapped(inside, links.Link.parse(link), ranks)
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    own = {"GLOO_SOCKET_IFNAME": loopback, "TORCH_CPP_LOG_LEVEL": "ERROR", "OMP_NUM_THREADS": "1"}
    code = subprocess.call(command, env=own | dict(os.environ) | said)
    if code:
        raise ScriptError(f"{script} failed as {ranks} processes: exit code {code}")


def main() -> None:
    """One rank of a script over a link: torchrun starts this."""
    # The ranks meet over the store, which they reach before they enter their namespaces.
    store, rank, size = next(rendezvous("env://"))
    links.enter(rank)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    thinwire.run_script(sys.argv[0])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
