"""A plain script under torchrun starts, trains and ends with thinwire as without it."""

import os
import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("script.py")


def test_a_script_that_destroys_no_process_group_ends_without_output_on_stderr() -> None:  # test_docs.py: if it does
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    completed = subprocess.run(
        [*torchrun, str(SCRIPT), "--method", "topk", "--no-destroy"],
        env=os.environ | {"OMP_NUM_THREADS": "1"},  # or torchrun prints that it has set it
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert completed.stderr == ""
    assert completed.returncode == 0
    (line,) = completed.stdout.splitlines()
    match = re.fullmatch(r"5 steps, compression ratio ([\d.]+)", line)
    assert match is not None, line
    assert float(match[1]) > 5
