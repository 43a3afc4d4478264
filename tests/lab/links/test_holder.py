"""Whatever way a run ends, nothing of its network is left."""

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
PATIENCE = 20  # seconds
CAP_SYS_ADMIN = 21


def acting(*arguments):
    return [sys.executable, actors.__file__, *map(str, arguments)]


class Started:
    """Two ranks in a network, and what would be left of them."""

    def __init__(self, process, token):
        self.process, self.token = process, token
        self.told = sorted((json.loads(process.stdout.readline()) for _ in range(2)), key=lambda told: told["rank"])
        self.namespaces = {told[where] for told in self.told for where in ("hub", "namespace")}

    def running(self, role=""):
        """The processes of this test, by their numbers as seen from here."""
        return {pid for pid, words in command_lines().items() if self.token in words and role in words}

    def left(self):
        return self.running(), {name for name in namespaces_in_use() if name in self.namespaces}

    def assert_nothing_is_left(self):
        deadline = time.monotonic() + PATIENCE
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
    """A namespace lives as long as a process is in it or holds it open."""
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


def test_each_rank_is_in_a_namespace_of_its_own_and_the_hub_in_another():
    with started() as run:
        assert len(run.namespaces) == 3
        assert os.readlink("/proc/self/ns/net") not in run.namespaces
        assert any(run.left()), "or the other tests would see nothing left too soon"


def test_nothing_is_left_after_the_end():
    with started() as run:
        for pid in run.running("rank"):
            os.kill(pid, signal.SIGTERM)
        assert run.process.wait(PATIENCE) == 5
        run.assert_nothing_is_left()


def test_nothing_is_left_after_a_rank_was_killed_and_its_launcher_left_the_other():
    with started() as run:
        os.kill(min(run.running("rank")), signal.SIGKILL)
        assert run.process.wait(PATIENCE) == 5
        run.assert_nothing_is_left()


def test_nothing_is_left_after_ctrl_c():
    with started(by_another_parent(), start_new_session=True) as run:
        os.killpg(run.process.pid, signal.SIGINT)
        run.process.wait(PATIENCE)
        run.assert_nothing_is_left()


def test_nothing_is_left_after_the_parent_was_killed():
    with started(by_another_parent()) as run:
        run.process.kill()
        run.process.wait(PATIENCE)
        run.assert_nothing_is_left()


def test_nothing_is_left_after_the_holder_was_killed():
    with started() as run:
        run.process.kill()
        run.process.wait(PATIENCE)
        run.assert_nothing_is_left()


def test_nothing_is_left_after_the_launcher_was_killed():
    with started() as run:
        (launcher,) = run.running("launcher") - run.running(holder.__file__)
        os.kill(launcher, signal.SIGKILL)
        assert run.process.wait(PATIENCE) == 128 + signal.SIGKILL
        run.assert_nothing_is_left()


def test_a_holder_whose_parent_has_ended_already_runs_nothing():
    command = wrapped(["echo", "it ran"], LINK, 1)
    ended = subprocess.run(acting("parent", "nobody", *command), capture_output=True, text=True, timeout=PATIENCE)
    assert (ended.returncode, ended.stdout) == (128 + signal.SIGKILL, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_command_is_asked_to_end_once_and_answers_with_its_exit_code(number):
    command = wrapped(acting("listener"), LINK, 1)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout.readline() == "listening\n"
        os.killpg(process.pid, number)  # as a terminal does, to the whole group
        assert process.wait(PATIENCE) == 7
        assert process.stdout.read() == f"{int(number)}\n"


@pytest.mark.parametrize(("does", "code"), [("exit 0", 0), ("exit 9", 9), ("kill -KILL $$", 128 + 9)])
def test_the_exit_code_of_the_command_is_passed_on(does, code):
    ended = subprocess.run(wrapped(["sh", "-c", f"echo out; echo err >&2; {does}"], LINK, 1), capture_output=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, b"out\n", b"err\n")


def test_without_privileges_a_user_namespace_serves():
    drop = acting("without_capability", CAP_SYS_ADMIN) if os.geteuid() == 0 else []
    with started(drop) as run:
        assert {told["user"] for told in run.told} != {os.readlink("/proc/self/ns/user")}
        assert len(run.namespaces) == 3
        run.process.kill()
        run.process.wait(PATIENCE)
        run.assert_nothing_is_left()


def test_where_no_namespace_can_be_made_one_line_says_so():
    assert refused(acting("without_namespaces")).startswith("thinwire: no network namespace can be made here: ")


def test_without_pyroute2_one_line_tells_how_to_get_it(tmp_path):
    (tmp_path / "pyroute2.py").write_text("raise ImportError")
    assert "pip install 'thinwire[lab]'" in refused(env=os.environ | {"PYTHONPATH": str(tmp_path)})


def test_a_command_that_is_not_there_is_named_in_one_line():
    assert "no-such-command" in refused(command="no-such-command")


def refused(through=(), command="true", **settings):
    ended = subprocess.run([*through, *wrapped([command], LINK, 1)], capture_output=True, text=True, **settings)
    assert (ended.returncode, ended.stdout) == (3, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith("thinwire: ")
    return line
