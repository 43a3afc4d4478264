"""Ranks that are threads of one process behave as if each had one of its own."""

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


def drawn() -> list[float]:
    transport = current_transport()
    torch.manual_seed(transport.rank)
    random.seed(transport.rank)
    numpy.random.seed(transport.rank)
    found = []
    for _ in range(3):
        found += [float(torch.rand(())), random.random(), float(numpy.random.rand())]
        transport.gather(b"so that others go on, and draw")
    return found


def test_each_rank_draws_as_if_it_were_alone():
    alone = []
    for rank in range(3):
        torch.manual_seed(rank)
        random.seed(rank)
        numpy.random.seed(rank)
        alone.append(
            [x for _ in range(3) for x in (float(torch.rand(())), random.random(), float(numpy.random.rand()))]
        )
    assert InProcessCluster(3).run(drawn) == alone


def test_what_the_process_draws_is_left_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    InProcessCluster(2).run(drawn)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_rank_that_has_seeded_nothing_draws_what_a_fresh_process_does():
    torch.manual_seed(99)
    first, second = InProcessCluster(2).run(lambda: float(torch.rand(())))
    assert first == second == float(torch.rand((), generator=torch.Generator()))


def test_one_rank_runs_at_a_time_and_more_when_nobody_draws():
    most = {}
    running, lock = [0], threading.Lock()

    def act(world: InProcessCluster, at_once: int) -> None:
        transport = current_transport()
        transport.gather(b"")
        if at_once > 1 and transport.rank == 0:
            world.set_max_running(at_once)
        transport.gather(b"")
        with lock:
            running[0] += 1
            most[at_once] = max(most.get(at_once, 0), running[0])
        time.sleep(0.05)
        with lock:
            running[0] -= 1

    for at_once in (1, 2):
        world = InProcessCluster(3)
        world.run(lambda world=world, at_once=at_once: act(world, at_once))
    assert most == {1: 1, 2: 2}


def test_drawing_where_several_run_at_once_is_refused():
    world = InProcessCluster(2)

    def act() -> None:
        transport = current_transport()
        transport.gather(b"")
        if transport.rank == 0:
            world.set_max_running(2)
        transport.gather(b"")
        torch.rand(())
        transport.gather(b"")

    with pytest.raises(ValueError, match="used the global random generator"):
        world.run(act)


def test_what_is_said_is_copied():
    def act() -> float:
        transport = current_transport()
        said = torch.ones(4, dtype=torch.uint8)
        if transport.rank == 0:
            transport.deliver(Post({1: said}, {}, {}))
            said.zero_()
            return 0.0
        return float(transport.deliver(Post({}, {0: 4}, {}))[0].sum())

    assert InProcessCluster(2).run(act) == [0.0, 4.0]


def test_lengths_that_differ_are_told():
    def act() -> None:
        transport, other = current_transport(), 1 - current_transport().rank
        transport.deliver(Post({other: torch.zeros(3, dtype=torch.uint8)}, {other: 3 + transport.rank}, {}))

    with pytest.raises(LockStepError, match="rank 0 sends 3 bytes to rank 1, which expects 4"):
        InProcessCluster(2).run(act)


def test_the_first_error_is_raised_and_the_others_are_told_of_it():
    told = {}

    def act() -> None:
        transport = current_transport()
        if transport.rank == 1:
            raise KeyError("boom")
        try:
            transport.gather(b"")
        except PeerLostError as error:
            told[transport.rank] = str(error)
            raise

    with pytest.raises(KeyError, match="boom"):
        InProcessCluster(3).run(act)
    assert told == dict.fromkeys((0, 2), "rank 1 has stopped: KeyError: 'boom'")


def test_ranks_that_wait_for_each_other_are_told_so():
    def act() -> None:
        transport = current_transport()
        transport.set_operation(f"line {transport.rank}")
        apart = transport.another() if transport.rank else transport  # a channel that the other one does not have
        apart.gather(b"")

    with pytest.raises(PeerLostError, match=r"waits for rank \d, which waits for others; rank 0 in line 0; rank 1 in"):
        InProcessCluster(2).run(act)


def test_a_rank_that_came_to_its_end_is_no_longer_waited_for():
    def act() -> None:
        if current_transport().rank:
            current_transport().gather(b"")

    with pytest.raises(PeerLostError, match="rank 0 has stopped: it has finished"):
        InProcessCluster(2).run(act)


def test_some_ranks_have_a_channel_of_their_own():
    def act() -> list[bytes]:
        transport = current_transport()
        pair = (0, 2) if transport.rank in (0, 2) else (1, 3)
        among = transport.among(pair)
        assert (among.rank, among.size) == (pair.index(transport.rank), 2)
        return among.another().gather(bytes([transport.rank]))

    assert InProcessCluster(4).run(act) == [[b"\0", b"\2"], [b"\1", b"\3"], [b"\0", b"\2"], [b"\1", b"\3"]]


def test_a_world_has_a_rank():
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
    counted = {name: n for name, n in handle.meter.as_dict(prefix="").items() if "seconds" not in name}
    values = [p.flatten().tolist() for p in handle.average().parameters()]
    handle.detach()
    return values, counted


def in_this_process(method: str) -> list:
    torch.set_num_threads(1)
    return trained(method)


WAYS = [
    *("dense", "adacomp", "server:topk", "powergossip", "osgp"),
    "Hierarchical(Identity(), LocalSGD(TopK(0.1), every=2), groups=GroupsOf(2))",
]


@pytest.mark.parametrize("method", WAYS)
def test_any_method_gives_the_bits_and_the_bytes_of_processes(method):
    assert InProcessCluster(4).run(lambda: in_this_process(method)) == run(trained, method, ranks=4)
