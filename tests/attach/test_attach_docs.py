"""The scripts in the guides run as they are."""

import os
import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def output_of(page: str, ranks: int, folder: Path) -> str:
    """The output of the first script of a page on a number of ranks."""
    found = re.search(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    assert found
    script = folder / "script.py"
    script.write_text(found[1])
    arguments = ["--standalone", "--nproc-per-node", str(ranks)]
    command = [sys.executable, "-m", "torch.distributed.run", *arguments, str(script)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}  # or torchrun prints that it has set it
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_script_of_decentralized_md_runs(tmp_path: Path) -> None:
    lines = re.findall(
        r"replicas are ([\d.]+)% apart, \{\d: (\d+), \d: \2\} bytes", output_of("decentralized.md", 3, tmp_path)
    )
    assert len(lines) == 3
    assert len({apart for apart, _ in lines}) == 1


def test_the_script_of_less_often_md_runs(tmp_path: Path) -> None:
    lines = re.findall(
        r"replicas are ([\d.]+)% apart, (\d+) times fewer bytes", output_of("less_often.md", 2, tmp_path)
    )
    assert lines == [("0.0", "50")] * 2, "they have just synchronized"
