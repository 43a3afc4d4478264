"""Ranks that are threads of one process give the same bits and bytes as ranks that are processes."""

import random
import threading
import time

import numpy
import pytest
import torch
from torch import nn

import thinwire
from tests.attach.processes import run
from thinwire.simulate import InProcessCluster
from thinwire.transports import LockStepError, PeerLostError, Post, current_transport


def random_numbers() -> list[float]:
    transport = current_transport()
    torch.manual_seed(transport.rank)
    random.seed(transport.rank)
    numpy.random.seed(transport.rank)
    numbers = []
    for _ in range(3):
        numbers += [float(torch.rand(())), random.random(), float(numpy.random.rand())]
        transport.gather(b"other ranks take their turn and use the generators")
    return numbers


def test_each_rank_has_its_own_random_generators():
    expected = []
    for rank in range(3):
        torch.manual_seed(rank)
        random.seed(rank)
        numpy.random.seed(rank)
        expected.append(
            [x for _ in range(3) for x in (float(torch.rand(())), random.random(), float(numpy.random.rand()))]
        )
    assert InProcessCluster(3).run(random_numbers) == expected


def test_a_run_leaves_the_process_generators_as_they_were():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    InProcessCluster(2).run(random_numbers)
    assert torch.equal(torch.get_rng_state(), before)


def test_without_a_seed_a_rank_has_the_random_numbers_of_a_new_process():
    torch.manual_seed(99)
    first, second = InProcessCluster(2).run(lambda: float(torch.rand(())))
    assert first == second == float(torch.rand((), generator=torch.Generator()))


def test_one_rank_runs_at_a_time_unless_max_running_is_set():
    most = {}
    running, lock = [0], threading.Lock()

    def count_running(cluster: InProcessCluster, max_running: int) -> None:
        transport = current_transport()
        transport.gather(b"")
        if max_running > 1 and transport.rank == 0:
            cluster.set_max_running(max_running)
        transport.gather(b"")
        with lock:
            running[0] += 1
            most[max_running] = max(most.get(max_running, 0), running[0])
        time.sleep(0.05)
        with lock:
            running[0] -= 1

    for max_running in (1, 2):
        cluster = InProcessCluster(3)
        cluster.run(lambda cluster=cluster, max_running=max_running: count_running(cluster, max_running))
    assert most == {1: 1, 2: 2}


def test_random_numbers_while_several_ranks_run_are_an_error():
    cluster = InProcessCluster(2)

    def on_rank() -> None:
        transport = current_transport()
        transport.gather(b"")
        if transport.rank == 0:
            cluster.set_max_running(2)
        transport.gather(b"")
        torch.rand(())
        transport.gather(b"")

    with pytest.raises(ValueError, match="used the global random generator"):
        cluster.run(on_rank)


def test_sent_buffers_are_copied():
    def on_rank() -> float:
        transport = current_transport()
        sent = torch.ones(4, dtype=torch.uint8)
        if transport.rank == 0:
            transport.deliver(Post({1: sent}, {}, {}))
            sent.zero_()
            return 0.0
        return float(transport.deliver(Post({}, {0: 4}, {}))[0].sum())

    assert InProcessCluster(2).run(on_rank) == [0.0, 4.0]


def test_a_buffer_of_unexpected_length_is_an_error():
    def on_rank() -> None:
        transport, other = current_transport(), 1 - current_transport().rank
        transport.deliver(Post({other: torch.zeros(3, dtype=torch.uint8)}, {other: 3 + transport.rank}, {}))

    with pytest.raises(LockStepError, match="rank 0 sends 3 bytes to rank 1, which expects 4"):
        InProcessCluster(2).run(on_rank)


def test_the_first_error_is_raised_and_reported_to_the_other_ranks():
    reported = {}

    def on_rank() -> None:
        transport = current_transport()
        if transport.rank == 1:
            raise KeyError("boom")
        try:
            transport.gather(b"")
        except PeerLostError as error:
            reported[transport.rank] = str(error)
            raise

    with pytest.raises(KeyError, match="boom"):
        InProcessCluster(3).run(on_rank)
    assert reported == dict.fromkeys((0, 2), "rank 1 has stopped: KeyError: 'boom'")


def test_a_deadlock_is_an_error_that_names_each_ranks_operation():
    def on_rank() -> None:
        transport = current_transport()
        transport.set_operation(f"line {transport.rank}")
        channel = transport.duplicate() if transport.rank else transport  # rank 0 has not opened it
        channel.gather(b"")

    with pytest.raises(PeerLostError, match=r"waits for rank \d, which waits for others; rank 0 in line 0; rank 1 in"):
        InProcessCluster(2).run(on_rank)


def test_waiting_for_a_rank_that_has_finished_is_an_error():
    def on_rank() -> None:
        if current_transport().rank:
            current_transport().gather(b"")

    with pytest.raises(PeerLostError, match="rank 0 has stopped: it has finished"):
        InProcessCluster(2).run(on_rank)


def test_a_subgroup_has_its_own_channel():
    def on_rank() -> list[bytes]:
        transport = current_transport()
        pair = (0, 2) if transport.rank in (0, 2) else (1, 3)
        subgroup = transport.subgroup(pair)
        assert (subgroup.rank, subgroup.size) == (pair.index(transport.rank), 2)
        return subgroup.duplicate().gather(bytes([transport.rank]))

    assert InProcessCluster(4).run(on_rank) == [[b"\0", b"\2"], [b"\1", b"\3"], [b"\0", b"\2"], [b"\1", b"\3"]]


def test_a_cluster_without_ranks_is_an_error():
    with pytest.raises(ValueError, match="1 rank or more, not 0"):
        InProcessCluster(0)


def trained(method: str) -> tuple[list[list[float]], dict[str, float]]:
    rank = current_transport().rank if current_transport() is not None else torch.distributed.get_rank()
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(12, 96), nn.Dropout(0.3), nn.ReLU(), nn.Linear(96, 64), nn.ReLU(), nn.Linear(64, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    handle = thinwire.attach(model, method, optimizer=optimizer)
    for _ in range(4):
        x = torch.randn(8, 12)
        loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        handle.report_loss(loss)
        optimizer.step()
    counts = {name: n for name, n in handle.meter.as_dict(prefix="").items() if "seconds" not in name}
    values = [p.flatten().tolist() for p in handle.average().parameters()]
    handle.detach()
    return values, counts


def trained_in_thread(method: str) -> list:
    torch.set_num_threads(1)
    return trained(method)


METHODS = [
    *("dense", "adacomp", "server:topk", "powergossip", "osgp"),
    "Hierarchical(Identity(), LocalSGD(TopK(0.1), every=2), groups=GroupsOf(2))",
]


@pytest.mark.parametrize("method", METHODS)
def test_threads_give_the_same_bits_and_bytes_as_processes(method):
    assert InProcessCluster(4).run(lambda: trained_in_thread(method)) == run(trained, method, ranks=4)
