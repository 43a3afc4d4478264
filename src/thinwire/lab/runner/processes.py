"""Real ranks: processes started by torchrun, connected by the loopback interface or by rate-limited links."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from thinwire.lab import links
from thinwire.lab.runner.plan import Plan
from thinwire.lab.runner.rank_process import EVENT_PREFIX
from thinwire.lab.runner.run_folder import RunFolder

OnEvent = Callable[[dict[str, Any]], None]
# In the error of a rank whose peer has died or stopped.
PEER_FAILED = re.compile("PeerLostError|ContractError|closed by peer|reset by peer|Timed out|timed out|Broken pipe")
GRACE = 10  # seconds between SIGTERM and SIGKILL


class RanksError(RuntimeError):
    """The ranks of a run ended before the run did; the message names the rank that failed first, and its error."""


def run(plans: list[Plan], on_event: OnEvent, folders: list[RunFolder] | None = None) -> None:
    """Run plans with the same ranks and link, one after the other.

    `on_event` receives the events of rank 0 and the output of all ranks. Checkpoints and captured gradients are saved
    in the folder of the plan.
    """
    first = plans[0]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(first.size)]
    with TemporaryDirectory(prefix="thinwire-", ignore_cleanup_errors=True) as done:
        where = json.dumps([(at.folder and str(at.folder), at.minutes) for at in folders or ()])
        arguments = [json.dumps([asdict(plan) for plan in plans]), done, where]
        _execute([*command, "-m", "thinwire.lab.runner.rank_process", *arguments], first, on_event)


def _execute(command: list[str], first: Plan, on_event: OnEvent) -> None:
    """Run a command that starts the ranks, and pass on their events and output."""
    if first.link is not None and not first.modeled:
        command = links.wrapped(command, links.Link.parse(first.link), first.size)
    output: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=_environment(first)
    ) as started:
        assert started.stdout is not None
        try:
            for line in started.stdout:
                for event in _events_in(line):
                    if "output" in event:
                        output.append(event["output"])
                    on_event(event)
            if started.wait():
                raise RanksError(_failure("".join(output), started.returncode))
        finally:
            _end(started)


def _events_in(line: str) -> Iterator[dict[str, Any]]:
    """The events in a line. Ranks share the pipe, so the output of other ranks may precede and follow an event."""
    before, prefix, rest = line.partition(EVENT_PREFIX)
    if before:
        yield {"output": before}
    if prefix:
        event, end = json.JSONDecoder().raw_decode(rest)
        if "done" in event:  # a run is too long for one write to a pipe, so it is in a file
            event["done"] = json.loads(Path(event["done"]).read_text())
        yield event
        yield from _events_in(rest[end:].removesuffix("\n"))


def _environment(plan: Plan) -> dict[str, str]:
    # Without links, all ranks are on this machine and use its loopback, as the host's name may not resolve.
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    required = {"OMP_NUM_THREADS": str(plan.threads), "PYTHONUNBUFFERED": "1"}
    return {"GLOO_SOCKET_IFNAME": loopback, "TORCH_CPP_LOG_LEVEL": "ERROR"} | dict(os.environ) | required


def _end(started: subprocess.Popen[str]) -> None:
    """Stop the ranks, if they are still running."""
    if started.poll() is None:
        started.terminate()
        try:
            started.wait(GRACE)
        except subprocess.TimeoutExpired:
            started.kill()


def _failure(output: str, code: int) -> str:
    """Which rank failed first and why, from the output and the exit code of torchrun."""
    refused = [line for line in output.splitlines() if line.startswith("thinwire: ")]
    if refused:  # the network could not be created
        return refused[-1].removeprefix("thinwire: ")
    # torchrun's summary has all failed ranks. The cause is one that was killed or raised an error of its own: the
    # others only report a closed connection.
    summary = output.partition("ChildFailedError")[2]
    ended = {
        int(rank): int(exit_code)
        for rank, exit_code in re.findall(r"rank\s*:\s*(\d+).*?exitcode\s*:\s*(-?\d+)", summary, re.DOTALL)
    }
    errors = {rank: _last_error(output, rank) for rank in ended}
    of_itself = [rank for rank in ended if errors[rank] and not PEER_FAILED.search(errors[rank])]
    # When one rank has ended, torchrun sends SIGTERM to the others. One that had raised would have exited with 1.
    failed = {
        rank: 1 if code == -signal.SIGTERM else code
        for rank, code in ended.items()
        if code != -signal.SIGTERM or rank in of_itself
    }
    killed = [rank for rank, exit_code in failed.items() if exit_code < 0]
    for rank in (*killed, *of_itself, *failed):
        return f"rank {rank} {_ending(failed[rank])}" + (
            f": {errors[rank]}" if errors[rank] and rank not in killed else ""
        )
    return f"the ranks {_ending(code)}"


def _last_error(output: str, rank: int) -> str:
    """The error that ended a rank: the first unindented line after its last traceback."""
    mine = [line.removeprefix(f"[rank{rank}]: ") for line in output.splitlines() if line.startswith(f"[rank{rank}]: ")]
    after = "\n".join(mine).rpartition("Traceback (most recent call last):")[2].splitlines()
    return next((line for line in after if line.strip() and not line.startswith(" ")), "")


def _ending(code: int) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
