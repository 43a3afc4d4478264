"""A plain script under torchrun begins, trains and ends as it did before thinwire came into it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("script.py")


@pytest.mark.parametrize(
    "options",
    [["--method", "powersgd"], ["--method", "topk", "--no-destroy"]],
    ids=["powersgd", "topk-without-destroy"],
)
def test_a_script_runs_under_torchrun_and_ends_in_silence(options: list[str]) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    ended = subprocess.run(
        [*torchrun, str(SCRIPT), *options],
        env=os.environ | {"OMP_NUM_THREADS": "1"},  # or torchrun says that it has set it
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.stderr == ""
    assert ended.returncode == 0
    (line,) = ended.stdout.splitlines()
    match = re.fullmatch(r"5 steps, ([\d.]+) times smaller", line)
    assert match is not None, line
    assert float(match[1]) > 5
