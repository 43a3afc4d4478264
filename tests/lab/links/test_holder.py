"""No process or namespace of a network is left, however its run ends."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from thinwire.lab.links import Link, holder, wrapped

from . import actors

pytestmark = pytest.mark.usefixtures("possible")

LINK = Link.parse("100mbit")
TIMEOUT = 20  # seconds
CAP_SYS_ADMIN = 21


def acting(*arguments):
    return [sys.executable, actors.__file__, *map(str, arguments)]


class Started:
    """Two ranks in a network, with their processes and namespaces."""

    def __init__(self, process, token):
        self.process, self.token = process, token
        self.reports = sorted((json.loads(process.stdout.readline()) for _ in range(2)), key=lambda one: one["rank"])
        self.namespaces = {report[where] for report in self.reports for where in ("hub", "namespace")}

    def running(self, role=""):
        """The ids of this test's processes, in this PID namespace."""
        return {pid for pid, words in command_lines().items() if self.token in words and role in words}

    def left(self):
        return self.running(), {name for name in namespaces_in_use() if name in self.namespaces}

    def assert_all_gone(self):
        deadline = time.monotonic() + TIMEOUT
        while any(self.left()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert self.left() == (set(), set())


def command_lines():
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            found[int(folder.name)] = (folder / "cmdline").read_text().split("\0")
        except OSError:
            continue  # it has ended
    return found


def namespaces_in_use():
    """A namespace lives as long as a process is in it or has it open."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            for link in [folder / "ns/net", *(folder / "fd").iterdir()]:
                yield os.readlink(link)
        except OSError:
            continue


@contextmanager
def started(through=(), **settings):
    token = uuid4().hex
    command = [*through, *wrapped(acting("launcher", 2, token), LINK, 2)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, **settings) as process:
        try:
            yield Started(process, token)
        finally:
            process.kill()


def by_another_parent():
    return acting("parent", os.readlink("/proc/self"))


def test_each_rank_and_the_hub_have_separate_namespaces():
    with started() as run:
        assert len(run.namespaces) == 3
        assert os.readlink("/proc/self/ns/net") not in run.namespaces
        assert any(run.left()), "else the other tests would pass without a check"


def test_no_process_is_left_after_the_end():
    with started() as run:
        for pid in run.running("rank"):
            os.kill(pid, signal.SIGTERM)
        assert run.process.wait(TIMEOUT) == 5
        run.assert_all_gone()


def test_no_process_is_left_after_one_rank_is_killed():
    with started() as run:
        os.kill(min(run.running("rank")), signal.SIGKILL)
        assert run.process.wait(TIMEOUT) == 5
        run.assert_all_gone()


def test_no_process_is_left_after_ctrl_c():
    with started(by_another_parent(), start_new_session=True) as run:
        os.killpg(run.process.pid, signal.SIGINT)
        run.process.wait(TIMEOUT)
        run.assert_all_gone()


def test_no_process_is_left_after_the_parent_is_killed():
    with started(by_another_parent()) as run:
        run.process.kill()
        run.process.wait(TIMEOUT)
        run.assert_all_gone()


def test_no_process_is_left_after_the_holder_is_killed():
    with started() as run:
        run.process.kill()
        run.process.wait(TIMEOUT)
        run.assert_all_gone()


def test_no_process_is_left_after_the_launcher_is_killed():
    with started() as run:
        (launcher,) = run.running("launcher") - run.running(holder.__file__)
        os.kill(launcher, signal.SIGKILL)
        assert run.process.wait(TIMEOUT) == 128 + signal.SIGKILL
        run.assert_all_gone()


def test_a_holder_whose_parent_has_ended_does_not_run_its_command():
    command = wrapped(["echo", "it ran"], LINK, 1)
    ended = subprocess.run(acting("parent", "nobody", *command), capture_output=True, text=True, timeout=TIMEOUT)
    assert (ended.returncode, ended.stdout) == (128 + signal.SIGKILL, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_forwarded_once_and_the_exit_code_passed_on(number):
    command = wrapped(acting("listener"), LINK, 1)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout.readline() == "listening\n"
        os.killpg(process.pid, number)  # as a terminal does, to the whole group
        assert process.wait(TIMEOUT) == 7
        assert process.stdout.read() == f"{int(number)}\n"


@pytest.mark.parametrize(("does", "code"), [("exit 0", 0), ("exit 9", 9), ("kill -KILL $$", 128 + 9)])
def test_the_exit_code_of_the_command_is_passed_on(does, code):
    ended = subprocess.run(wrapped(["sh", "-c", f"echo out; echo err >&2; {does}"], LINK, 1), capture_output=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, b"out\n", b"err\n")


def test_without_privileges_a_user_namespace_is_used():
    drop = acting("without_capability", CAP_SYS_ADMIN) if os.geteuid() == 0 else []
    with started(drop) as run:
        assert {report["user"] for report in run.reports} != {os.readlink("/proc/self/ns/user")}
        assert len(run.namespaces) == 3
        run.process.kill()
        run.process.wait(TIMEOUT)
        run.assert_all_gone()


def test_without_namespaces_the_error_is_one_line():
    assert refused(acting("without_namespaces")).startswith("thinwire: no network namespace can be created here: ")


def test_without_pyroute2_the_error_says_how_to_install_it(tmp_path):
    (tmp_path / "pyroute2.py").write_text("raise ImportError")
    assert "pip install 'thinwire[lab]'" in refused(env=os.environ | {"PYTHONPATH": str(tmp_path)})


def test_a_missing_command_is_an_error_that_names_it():
    assert "no-such-command" in refused(command="no-such-command")


def refused(through=(), command="true", **settings):
    ended = subprocess.run([*through, *wrapped([command], LINK, 1)], capture_output=True, text=True, **settings)
    assert (ended.returncode, ended.stdout) == (3, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith("thinwire: ")
    return line
