import signal

import pytest
import torch
from hypothesis import settings

from .compiled_loops import cache_by_digest

cache_by_digest()

# Tensors in tests are small: more threads would be slower, and would take cores from other processes.
torch.set_num_threads(1)

# The same examples in every run, so that failures are reproducible.
settings.register_profile("thinwire", deadline=None, derandomize=True, database=None)
settings.load_profile("thinwire")

# A shell may start background jobs with SIGINT ignored. Subprocesses that tests interrupt would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Files with tests that take many seconds.
FOLDERS = ("attach/", "codecs/", "contracts/", "lab/", "replicator/", "strategies/", "reducers/", "transports/")
LONG = (*FOLDERS, "kernels/test_compiled.py", "cli/test_cli.py", "wire/test_payload.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run long files first, so that all workers end at about the same time; keep the order within a file."""
    items.sort(key=lambda item: not any(f"tests/{prefix}" in item.nodeid for prefix in LONG))
