"""Real ranks: processes that torchrun starts, joined by the machine's loopback or by links that are really thin."""

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
from thinwire.lab.runner.rank_process import TOLD
from thinwire.lab.runner.run_folder import Place

Hear = Callable[[dict[str, Any]], None]
# What is said of a peer that has died, or stopped.
LOST = re.compile("PeerLostError|ContractError|closed by peer|reset by peer|Timed out|timed out|Broken pipe")
GRACE = 10  # seconds to end in when asked to


class RanksError(RuntimeError):
    """The ranks of a run ended before it did; the message tells which failed first, and how."""


def run(plans: list[Plan], hear: Hear, places: list[Place] | None = None) -> None:
    """Run plans of equal ranks and link, one after the other; `hear` gets what rank 0 tells and all that is said.

    Checkpoints, and gradients that a plan captures, go to the folder of its place.
    """
    first = plans[0]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(first.size)]
    with TemporaryDirectory(prefix="thinwire-", ignore_cleanup_errors=True) as done:
        where = json.dumps([(place.folder and str(place.folder), place.minutes) for place in places or ()])
        said = [json.dumps([asdict(plan) for plan in plans]), done, where]
        _listen([*command, "-m", "thinwire.lab.runner.rank_process", *said], first, hear)


def _listen(command: list[str], first: Plan, hear: Hear) -> None:
    """Run a command of ranks to its end, and pass on what it tells and says."""
    if first.link is not None and not first.modeled:
        command = links.wrapped(command, links.Link.parse(first.link), first.size)
    said: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=_environment(first)
    ) as started:
        assert started.stdout is not None
        try:
            for line in started.stdout:
                for event in _events_in(line):
                    if "said" in event:
                        said.append(event["said"])
                    hear(event)
            if started.wait():
                raise RanksError(_what_failed("".join(said), started.returncode))
        finally:
            _end(started)


def _events_in(line: str) -> Iterator[dict[str, Any]]:
    """What a line tells. Ranks share the pipe, so what another one prints may stand before an event and behind it."""
    before, told, rest = line.partition(TOLD)
    if before:
        yield {"said": before}
    if told:
        event, end = json.JSONDecoder().raw_decode(rest)
        if "done" in event:  # a run is too long for one piece of a pipe, so it comes in a file
            event["done"] = json.loads(Path(event["done"]).read_text())
        yield event
        yield from _events_in(rest[end:].removesuffix("\n"))


def _environment(plan: Plan) -> dict[str, str]:
    # Without a link of their own, all ranks are on this machine: its loopback serves, whatever the host is called.
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    asked = {"OMP_NUM_THREADS": str(plan.threads), "PYTHONUNBUFFERED": "1"}
    return {"GLOO_SOCKET_IFNAME": loopback, "TORCH_CPP_LOG_LEVEL": "ERROR"} | dict(os.environ) | asked


def _end(started: subprocess.Popen[str]) -> None:
    """End the ranks, if they have not ended."""
    if started.poll() is None:
        started.terminate()
        try:
            started.wait(GRACE)
        except subprocess.TimeoutExpired:
            started.kill()


def _what_failed(said: str, code: int) -> str:
    refused = [line for line in said.splitlines() if line.startswith("thinwire: ")]
    if refused:  # the network could not be made
        return refused[-1].removeprefix("thinwire: ")
    # torchrun's summary has all ranks that failed. One that was killed, or failed of itself, is the cause: the others
    # only lost their connection to it.
    summary = said.partition("ChildFailedError")[2]
    ended = {
        int(rank): int(exit_code)
        for rank, exit_code in re.findall(r"rank\s*:\s*(\d+).*?exitcode\s*:\s*(-?\d+)", summary, re.DOTALL)
    }
    words = {rank: _last_words(said, rank) for rank in ended}
    of_itself = [rank for rank in ended if words[rank] and not LOST.search(words[rank])]
    # torchrun ends all others when one has ended. Who has raised by then, and is on its way out, would have ended so.
    failed = {
        rank: 1 if code == -signal.SIGTERM else code
        for rank, code in ended.items()
        if code != -signal.SIGTERM or rank in of_itself
    }
    killed = [rank for rank, exit_code in failed.items() if exit_code < 0]
    for rank in (*killed, *of_itself, *failed):
        return f"rank {rank} {_told(failed[rank])}" + (f": {words[rank]}" if words[rank] and rank not in killed else "")
    return f"the ranks {_told(code)}"


def _last_words(said: str, rank: int) -> str:
    """The error that a rank ended with: the first line after its last traceback that is not indented."""
    mine = [line.removeprefix(f"[rank{rank}]: ") for line in said.splitlines() if line.startswith(f"[rank{rank}]: ")]
    after = "\n".join(mine).rpartition("Traceback (most recent call last):")[2].splitlines()
    return next((line for line in after if line.strip() and not line.startswith(" ")), "")


def _told(code: int) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
