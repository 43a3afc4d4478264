"""No processes or namespaces are left after the parent is killed, and the next run works."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from thinwire.lab import links

REASON = links.possible()
pytestmark = pytest.mark.skipif(REASON is not None, reason=f"no link can be created here: {REASON}")


def command(out: Path, steps: int) -> list[str]:
    settings = ["--workload", "digits-cnn", "--method", "dense", "--ranks", "2", "--link", "2mbit", "--quiet"]
    return [sys.executable, "-m", "thinwire", "train", *settings, "--steps", str(steps), "--out", str(out)]


def marked(mark: str) -> dict[int, str]:
    """The processes with this mark in their environment, and the network namespace of each."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"THINWIRE_TEST={mark}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found[int(process.name)] = os.readlink(process / "ns" / "net")
        except OSError:  # it has ended
            continue
    return found


def eventually(condition, seconds=60.0):
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.1)
    return condition()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_no_process_is_left_when_the_parent_ends(tmp_path, how):
    mark, out = str(tmp_path), tmp_path / "first"
    environment = os.environ | {"THINWIRE_TEST": mark}
    here = os.readlink("/proc/self/ns/net")
    with subprocess.Popen(command(out, 1000), stderr=subprocess.PIPE, text=True, env=environment) as parent:
        # The namespaces of the hub and of each rank.
        assert eventually(lambda: (out / "log.txt").exists() and len(set(marked(mark).values()) - {here}) == 3)
        parent.send_signal(how)
        _, error = parent.communicate(timeout=60)
    assert eventually(lambda: not marked(mark)), "an unnamed namespace vanishes with its last process"
    if how == signal.SIGINT:
        assert parent.returncode == 130
        assert error == "thinwire: interrupted; finished runs are kept, the same command resumes\n"
        return
    # After a kill, the next run works and leaves no process either.
    again = subprocess.run(command(tmp_path / "second", 2), capture_output=True, text=True, env=environment)
    assert again.returncode == 0, again.stderr
    assert json.loads((tmp_path / "second" / "run.json").read_text())["steps"] == 2
    assert eventually(lambda: not marked(mark))
