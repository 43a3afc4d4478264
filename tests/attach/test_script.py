"""A plain script under torchrun begins, trains and ends as it did before thinwire came into it."""

import os
import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("script.py")


def test_a_script_that_destroys_no_group_ends_in_silence_under_torchrun() -> None:  # test_docs.py has those that do
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    ended = subprocess.run(
        [*torchrun, str(SCRIPT), "--method", "topk", "--no-destroy"],
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
