"""The scripts in the guides run as they are."""

import io
import os
import re
import runpy
import socket
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import torch.distributed as dist

from .processes import run

DOCS = Path(__file__).parents[2] / "docs"


def script_of(page: str, folder: Path) -> str:
    """A file with the first script of a page."""
    found = re.search(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    assert found
    script = folder / "script.py"
    script.write_text(found[1])
    return str(script)


def said_by_a_rank(script: str, port: int) -> str:
    """What a script prints that joins its group itself, in an environment as torchrun makes it."""
    rank, size = dist.get_rank(), dist.get_world_size()
    dist.destroy_process_group()
    here = {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ.update(here)
    try:
        with redirect_stdout(io.StringIO()) as said:
            runpy.run_path(script, run_name="__main__")
    finally:
        for name in here:
            del os.environ[name]
    return said.getvalue()


def said_by_ranks(script: str, ranks: int) -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    return "".join(run(said_by_a_rank, script, port, ranks=ranks))


def said_under_torchrun(script: str, ranks: int) -> str:
    ranked = ["--standalone", "--nproc-per-node", str(ranks)]
    command = [sys.executable, "-m", "torch.distributed.run", *ranked, script]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}  # or torchrun says that it has set it
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_neighbours_train(tmp_path: Path) -> None:
    told = re.findall(
        r"replicas are ([\d.]+)% apart, \{\d: (\d+), \d: \2\} bytes",
        said_under_torchrun(script_of("neighbours.md", tmp_path), 3),
    )
    assert len(told) == 3
    assert len({apart for apart, _ in told}) == 1


def test_replicas_that_meet_train(tmp_path: Path) -> None:
    said = said_by_ranks(script_of("less_often.md", tmp_path), 2)
    told = re.findall(r"replicas are ([\d.]+)% apart, (\d+) times fewer bytes", said)
    assert told == [("0.0", "50")] * 2, "they have just met"
