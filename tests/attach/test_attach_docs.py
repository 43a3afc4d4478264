"""The scripts in the guides run as they are."""

import os
import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def said(page: str, ranks: int, folder: Path) -> str:
    """What the first script of a page prints on so many ranks."""
    found = re.search(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    assert found
    script = folder / "script.py"
    script.write_text(found[1])
    ranked = ["--standalone", "--nproc-per-node", str(ranks)]
    command = [sys.executable, "-m", "torch.distributed.run", *ranked, str(script)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}  # or torchrun says that it has set it
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_neighbours_train(tmp_path: Path) -> None:
    told = re.findall(
        r"replicas are ([\d.]+)% apart, \{\d: (\d+), \d: \2\} bytes", said("decentralized.md", 3, tmp_path)
    )
    assert len(told) == 3
    assert len({apart for apart, _ in told}) == 1


def test_replicas_that_meet_train(tmp_path: Path) -> None:
    told = re.findall(r"replicas are ([\d.]+)% apart, (\d+) times fewer bytes", said("less_often.md", 2, tmp_path))
    assert told == [("0.0", "50")] * 2, "they have just met"
