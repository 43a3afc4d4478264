import signal

import pytest
import torch
from hypothesis import settings

from .compiled_loops import keep_by_digest

keep_by_digest()

# Tensors here are small: a second thread only waits for the first, and takes a core from whatever else is running.
torch.set_num_threads(1)

# The same examples every time: a failure that comes and goes teaches people to run the tests again.
settings.register_profile("thinwire", deadline=None, derandomize=True, database=None)
settings.load_profile("thinwire")

# Whoever starts the tests in the background may have them ignore Ctrl-C, and so would what they start and interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Have tests of many seconds.
FOLDERS = ("attach/", "codecs/", "contracts/", "lab/", "replicator/", "strategies/", "reducers/", "transports/")
LONG = (*FOLDERS, "kernels/test_compiled.py", "test_cli.py", "test_payload.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, so that all workers end at about the same time; within a file, the order stays."""
    items.sort(key=lambda item: not any(f"tests/{place}" in item.nodeid for place in LONG))
