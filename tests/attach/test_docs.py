"""The script in the guide to neighbours runs as it is."""

import re
import subprocess
import sys
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "neighbours.md"


def test_the_example_trains_on_four_ranks(tmp_path: Path) -> None:
    found = re.search(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert found
    script = tmp_path / "script.py"
    script.write_text(found[1])
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    told = re.findall(r"replicas are ([\d.]+)% apart, \{\d: (\d+), \d: \2\} bytes", done.stdout)
    assert len(told) == 4
    assert len({apart for apart, _ in told}) == 1
