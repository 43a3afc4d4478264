"""One unchanged script gives the same model in one process, as threads, as processes and on two hosts, by method."""

import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest

import thinwire
from tests.attach.processes import run
from thinwire.lab import links as lab_links

from .replica_scripts import EXAMPLES, printed, printed_by_rank

SCRIPT, ARGUMENTS = "classifier.py", ("--steps", "4")
# DiLoCo synchronizes every 50 steps; here every 2, for two synchronizations.
DILOCO = repr(replace(thinwire.strategy_of("diloco"), every=2))
METHODS = ["dense", "adacomp", "powergossip", DILOCO]


def digest(printed: str) -> str:
    (found,) = re.findall(r"digest ([0-9a-f]{12})", printed)
    return found


@pytest.fixture(scope="module")
def by_processes() -> dict[str, str]:
    return {method: digest(run(printed_by_rank, SCRIPT, ARGUMENTS, method, ranks=4)[0]) for method in METHODS}


@pytest.mark.parametrize("method", METHODS)
def test_four_threads_give_the_same_model_as_four_processes(method, by_processes):
    assert digest(printed(SCRIPT, *ARGUMENTS, ranks=4, method=method)) == by_processes[method]


def test_four_replicas_in_a_plain_python_process_give_the_same_model(by_processes):
    command = [sys.executable, str(EXAMPLES / SCRIPT), *ARGUMENTS, "--replicas", "4"]
    environment = {name: value for name, value in os.environ.items() if name != thinwire.Replicator.VARIABLE}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert "replicas 4" in ran.stdout
    assert digest(ran.stdout) == by_processes["dense"]


def test_one_replica_with_all_examples_gives_the_same_up_to_rounding():
    one, four = (printed(SCRIPT, "--steps", "20", ranks=ranks) for ranks in (None, 4))
    found = [[float(x) for x in re.findall(r"(?:loss|to|accuracy) ([\d.]+\d)", text)] for text in (one, four)]
    assert found[0] == pytest.approx(found[1], abs=0.003)
    assert digest(one) != digest(four)


def test_different_methods_give_different_models(by_processes):
    assert len(set(by_processes.values())) == len(METHODS)


@pytest.mark.skipif(
    os.geteuid() != 0 or bool(lab_links.possible()), reason="needs root, to start torchrun in network namespaces"
)
def test_two_hosts_under_torchrun_give_the_same_model(by_processes):
    from pyroute2 import IPRoute, NetNS, netns

    names = [f"thinwire-{os.getpid()}-{side}" for side in "ab"]
    addresses = ["10.213.77.1", "10.213.77.2"]
    links = [f"tw{side}{os.getpid() % 10**6}" for side in "ab"]
    for name in names:
        netns.create(name)
    try:
        with IPRoute() as here:
            here.link("add", ifname=links[0], kind="veth", peer=links[1])
            for link, name in zip(links, names, strict=True):
                here.link("set", index=here.link_lookup(ifname=link)[0], net_ns_fd=name)
        for link, name, address in zip(links, names, addresses, strict=True):
            with NetNS(name) as there:
                index = there.link_lookup(ifname=link)[0]
                there.addr("add", index=index, address=address, prefixlen=24)
                there.link("set", index=index, state="up")
                there.link("set", index=there.link_lookup(ifname="lo")[0], state="up")
        hosts = [
            subprocess.Popen(
                [
                    *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2"),
                    *("--node-rank", str(node), "--master-addr", addresses[0], "--master-port", "29517"),
                    *(str(EXAMPLES / SCRIPT), *ARGUMENTS),
                ],
                env=dict(os.environ)
                | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": links[node], thinwire.Replicator.VARIABLE: "dense"},
                preexec_fn=lambda name=names[node]: netns.setns(name),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for node in range(2)
        ]
        first, second = (host.communicate(timeout=120)[0] for host in hosts)
        assert [host.returncode for host in hosts] == [0, 0], first + second
        assert digest(first + second) == by_processes["dense"]
    finally:
        for name in names:
            netns.remove(name)
