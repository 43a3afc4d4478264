"""A parent that is killed leaves nothing behind, and the next run works."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from thinwire.lab import links

REASON = links.possible()
pytestmark = pytest.mark.skipif(REASON is not None, reason=f"no link can be made here: {REASON}")


def command(verb: str, methods: list[str], steps: int, out: Path) -> list[str]:
    asked = ["--method" if verb == "train" else "--methods", *methods, "--steps", str(steps), "--out", str(out)]
    settings = ["--workload", "digits-cnn", "--ranks", "2", "--link", "2mbit", "--quiet"]
    return [sys.executable, "-m", "thinwire", verb, *settings, *asked]


def marked(mark: str) -> dict[int, str]:
    """The processes that were started with this mark in their environment, and the network namespace of each."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"THINWIRE_TEST={mark}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found[int(process.name)] = os.readlink(process / "ns" / "net")
        except OSError:  # it has ended
            continue
    return found


def eventually(what, seconds=60.0):
    until = time.monotonic() + seconds
    while not what() and time.monotonic() < until:
        time.sleep(0.1)
    return what()


def ended(started: list[str], mark: str, how: signal.Signals, begun: Callable[[], bool]) -> tuple[int, str]:
    """The exit code and last words of a command that gets a signal once its links are there, and it has begun."""
    here = os.readlink("/proc/self/ns/net")
    environment = os.environ | {"THINWIRE_TEST": mark}
    with subprocess.Popen(started, stderr=subprocess.PIPE, text=True, env=environment) as parent:
        # The hub's namespace, and that of each rank.
        assert eventually(lambda: begun() and len(set(marked(mark).values()) - {here}) == 3)
        parent.send_signal(how)
        _, said = parent.communicate(timeout=60)
    assert eventually(lambda: not marked(mark)), "with its last process, a namespace without a name is gone"
    return parent.returncode, said


def test_nothing_is_left_of_a_run_that_was_killed_and_the_next_works_and_is_interrupted(tmp_path):
    mark, first, second = str(tmp_path), tmp_path / "first", tmp_path / "second"
    ended(command("train", ["dense"], 1000, first), mark, signal.SIGKILL, (first / "log.txt").exists)
    # Signs take little of the link, so they are done while dense gradients go on and on.
    finished = second / "sign" / "seed-1" / "run.json"
    long = command("compare", ["sign", "dense"], 30, second)
    code, said = ended(long, mark, signal.SIGINT, finished.exists)
    assert (code, said) == (130, "thinwire: interrupted; runs that were finished are kept\n")
    assert json.loads(finished.read_text())["steps"] == 30
    assert not (second / "dense" / "seed-1" / "run.json").exists()
