import json
import os
import subprocess
import sys

import pytest

from thinwire.lab import links

from . import gloo_rank


def test_entering_without_a_network_does_nothing():
    before = os.readlink("/proc/self/ns/net") if sys.platform == "linux" else None
    assert not links.inside()
    links.enter(0)
    assert before is None or os.readlink("/proc/self/ns/net") == before


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_counters_without_the_interface_are_an_error(monkeypatch):
    monkeypatch.setattr("thinwire.lab.links.holder.INTERFACE", "none-such")
    with pytest.raises(RuntimeError, match="there is no none-such here"):
        links.counters()


@pytest.mark.usefixtures("possible")
def test_the_traffic_of_gloo_uses_the_link_and_is_counted():
    elements, ranks, bits = 250_000, 2, 20 * 10**6
    payload = 4 * elements * 2 * (ranks - 1) // ranks  # in each direction, per rank
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command = links.wrapped([*command, gloo_rank.__file__, str(elements)], links.Link(bits, bits), ranks)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert ended.returncode == 0, ended.stderr
    report = json.loads(ended.stdout)
    assert report["inside"]
    assert report["sum"] == ranks * elements
    # 66 bytes of headers per 1448 of payload, and acknowledgements of the opposite direction.
    assert all(1.045 < counted / payload < 1.1 for counted in report["counted"])
    at_least = payload * 8 / bits
    assert at_least < report["seconds"] < 3 * at_least
