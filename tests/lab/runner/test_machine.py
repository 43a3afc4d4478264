import os

import pytest
import torch

from thinwire.lab.runner import machine


def test_the_machine_is_described_by_texts():
    described = machine.described()
    assert described["torch"] == torch.__version__
    assert all(isinstance(value, str) and value for value in described.values())


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no CPU affinity")
def test_only_allowed_cores_are_counted():
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert machine.cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)
    assert machine.cores() == len(allowed)
