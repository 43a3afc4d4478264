"""Every benchmark can be imported: nothing else in the suite runs them."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_benchmarks_are_listed_by_name() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "benchmarks", "nothing"], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert found.returncode == 1
    assert found.stderr.startswith("there is no benchmark 'nothing'; choose from "), found.stderr
