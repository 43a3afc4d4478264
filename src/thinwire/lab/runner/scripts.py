"""A script for one replica, run on several ranks: all in one process, or one process per rank."""

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
    """A script failed; its error has been printed."""


def run(
    script: Path,
    arguments: Sequence[str],
    ranks: int,
    transport: str = "processes",
    method: str | None = None,
    link: str | None = None,
) -> None:
    """Run a script on `ranks` ranks, and pass on its output."""
    if not script.is_file():
        raise ValueError(f"there is no script {script}")
    if ranks < 1:
        raise ValueError(f"a script runs as 1 rank or more, not {ranks!r}")
    if transport not in TRANSPORTS:
        raise ValueError(f"the transport is one of {', '.join(TRANSPORTS)}, not {transport!r}")
    if link is not None and transport == "simulated":
        raise ValueError("simulated ranks have no link between them: leave out --link, or use processes")
    variables = {} if method is None else {thinwire.Replicator.VARIABLE: method}
    if method is not None:
        thinwire.strategy_of(method)  # raises before anything is started
    if transport == "simulated":
        _in_one_process(script, arguments, ranks, variables)
    else:
        _in_processes(script, arguments, ranks, link, variables)


def _in_one_process(script: Path, arguments: Sequence[str], ranks: int, variables: dict[str, str]) -> None:
    before, path, environment = sys.argv, sys.path[:], dict(os.environ)
    sys.argv, sys.path[0:0] = [str(script), *arguments], [str(script.resolve().parent)]
    os.environ.update(variables)
    try:
        thinwire.run_script(script, ranks)
    except Exception as error:  # any error of the user's script
        traceback.print_exception(error)
        raise ScriptError(f"{script} failed: {type(error).__name__}: {error}") from None
    finally:
        sys.argv, sys.path[:] = before, path
        os.environ.clear()
        os.environ.update(environment)


def _in_processes(
    script: Path, arguments: Sequence[str], ranks: int, link: str | None, variables: dict[str, str]
) -> None:
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command = [*start, str(script), *arguments]
    if link is not None:
        inside = [*start, "-m", "thinwire.lab.runner.scripts", str(script), *arguments]
        command = links.wrapped(inside, links.Link.parse(link), ranks)
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    defaults = {"GLOO_SOCKET_IFNAME": loopback, "TORCH_CPP_LOG_LEVEL": "ERROR", "OMP_NUM_THREADS": "1"}
    code = subprocess.call(command, env=defaults | dict(os.environ) | variables)
    if code:
        raise ScriptError(f"{script} failed as {ranks} processes: exit code {code}")


def main() -> None:
    """One rank of a script over a link, started by torchrun."""
    # The ranks connect to the store before they enter their namespaces, where they could not reach it.
    store, rank, size = next(rendezvous("env://"))
    links.enter(rank)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    thinwire.run_script(sys.argv[0])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
