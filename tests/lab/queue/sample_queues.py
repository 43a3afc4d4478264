"""Queue files for tests."""

from pathlib import Path

from tests.lab.sample_tasks import called

DEFAULTS = f'''
checkpoint_minutes = 1e-7
[defaults]
workload = "{called("Tiny")}"
ranks = 2
transport = "simulated"
budget = "plateau"
'''


def written(folder: Path, tables: str, defaults: str = DEFAULTS) -> Path:
    """A queue file with these tables and `out = folder/out`."""
    path = folder / "queue.toml"
    path.write_text(f'out = "{folder / "out"}"\n{defaults}\n{tables}')
    return path
