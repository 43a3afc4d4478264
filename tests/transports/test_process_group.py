"""Real processes send, count and compute exactly the same as simulated ranks."""

import gc
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import thinwire
from tests.attach.processes import run
from tests.attach.training import BY_RANKS, all_same, error_of, same
from thinwire import extend, inspect, simulate
from thinwire.core import Message, lockstep
from thinwire.core.states import plain
from thinwire.extend import ProcessGroupTransport, all_ranks
from thinwire.methods import strategy_of
from thinwire.simulate import Simulated
from thinwire.transports import process_group

STEPS = 4
COUNTS = ("rounds", "payload_bytes", "link_bytes")


class Odd(nn.Module):
    """Sizes that no number of ranks divides, and a second dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.large = nn.Parameter(torch.zeros(67, 71))
        self.kernel = nn.Parameter(torch.zeros(13, 5, 3, 3))
        self.vector = nn.Parameter(torch.zeros(11))
        self.scalar = nn.Parameter(torch.zeros(()))
        self.wide = nn.Parameter(torch.zeros(31, 37, dtype=torch.float64))


def set_gradients(model: nn.Module, step: int, rank: int) -> None:
    for i, p in enumerate(model.parameters()):
        seed = 10_000 * step + 100 * rank + i
        p.grad = torch.randn(p.shape, dtype=p.dtype, generator=torch.Generator().manual_seed(seed))


def gradients_of(model: nn.Module) -> dict:
    return {name: p.grad.clone() for name, p in model.named_parameters()}


def counts(meter: inspect.Meter) -> dict:
    return {name: getattr(meter, name) for name in COUNTS}


def on_real_ranks(method: str) -> dict:
    transport = ProcessGroupTransport()
    strategy, model = strategy_of(method), Odd()
    replica = simulate.replica_of(model, rank=transport.rank, size=transport.size)
    state, reduced = strategy.init(replica), []
    for step in range(STEPS):
        set_gradients(model, step, transport.rank)
        result = transport.run(strategy.before_update(replica, state))
        assert result.nonfinite == ()
        state = result.state
        reduced.append(gradients_of(model))
    return {"reduced": reduced, "state": plain(state), "counts": counts(transport.meter)}


def on_simulated_ranks(method: str, ranks: int) -> list[dict]:
    transport, strategy = Simulated(ranks), strategy_of(method)
    models = [Odd() for _ in range(ranks)]
    replicas = [simulate.replica_of(model, rank=rank, size=ranks) for rank, model in enumerate(models)]
    states = [strategy.init(replica) for replica in replicas]
    reduced: list[list[dict]] = [[] for _ in range(ranks)]
    for step in range(STEPS):
        for rank, model in enumerate(models):
            set_gradients(model, step, rank)
        exchanges = [strategy.before_update(replica, state) for replica, state in zip(replicas, states, strict=True)]
        states = [result.state for result in transport.run(exchanges)]
        for rank, model in enumerate(models):
            reduced[rank].append(gradients_of(model))
    return [
        {"reduced": reduced[rank], "state": plain(states[rank]), "counts": counts(transport.meters[rank])}
        for rank in range(ranks)
    ]


@pytest.mark.parametrize(("method", "ranks"), BY_RANKS)
def test_real_ranks_equal_simulated_ranks_in_bits_and_bytes(method: str, ranks: int) -> None:
    real, simulated = run(on_real_ranks, method, ranks=ranks), on_simulated_ranks(method, ranks)
    for rank in range(ranks):
        assert real[rank]["counts"] == simulated[rank]["counts"]
        assert same(real[rank]["reduced"], simulated[rank]["reduced"])
        assert same(real[rank]["state"], simulated[rank]["state"])
    assert all_same(result["reduced"] for result in real)
    assert all(count > 0 for count in real[0]["counts"].values())


def send_once(message: Message) -> Any:
    reply = yield message
    return reply.reduced.clone(), reply.sent.clone()


def exchanged(route: extend.Route, codec: Any) -> tuple:
    transport = ProcessGroupTransport()
    own = torch.arange(6.0) + 10 * transport.rank
    exchange = lockstep([(all_ranks(transport.size), send_once(Message(own, codec, route=route)))])
    (replies,) = transport.run(exchange)
    return replies


MEAN = sum(torch.arange(6.0) + 10 * rank for rank in range(4)) / 4


@pytest.mark.parametrize("codec", [thinwire.Identity(), thinwire.Nonzero()], ids=["linear", "variable"])
def test_all_reduce_gives_all_ranks_the_mean(codec: Any) -> None:
    for rank, (reduced, sent) in enumerate(run(exchanged, extend.ALL_REDUCE, codec, ranks=4)):
        assert torch.equal(reduced, MEAN)
        assert torch.equal(sent, torch.arange(6.0) + 10 * rank)


@pytest.mark.parametrize("codec", [thinwire.Identity(), thinwire.Nonzero()], ids=["linear", "variable"])
def test_broadcast_gives_all_ranks_the_message(codec: Any) -> None:
    for rank, (reduced, sent) in enumerate(run(exchanged, extend.broadcast_from(2), codec, ranks=4)):
        assert torch.equal(reduced, torch.arange(6.0) + 20)
        assert torch.equal(sent, torch.arange(6.0) + 20 if rank == 2 else torch.zeros(6))


@pytest.mark.parametrize("codec", [thinwire.Identity(), thinwire.Nonzero()], ids=["linear", "variable"])
def test_reduce_gives_one_rank_the_mean(codec: Any) -> None:
    for rank, (reduced, sent) in enumerate(run(exchanged, extend.reduce_to(1), codec, ranks=4)):
        assert torch.equal(reduced, MEAN if rank == 1 else torch.zeros(6))
        assert torch.equal(sent, torch.arange(6.0) + 10 * rank)


def gathered() -> list[bytes]:
    rank = dist.get_rank()
    return ProcessGroupTransport().gather(bytes([rank]) * (5 * rank + 1))


def test_gather_returns_the_bytes_of_all_ranks_in_order() -> None:
    expected = [bytes([rank]) * (5 * rank + 1) for rank in range(4)]
    assert run(gathered, ranks=4) == [expected] * 4


def copied() -> tuple[bool, list]:
    rank = dist.get_rank()
    tensors = [torch.full((3,), rank), torch.full((2, 2), float(rank)).t(), torch.full((), rank == 1)]
    addresses = [tensor.data_ptr() for tensor in tensors]
    ProcessGroupTransport().broadcast(tensors, source=1)
    return [tensor.data_ptr() for tensor in tensors] == addresses, tensors


def test_broadcast_overwrites_in_place() -> None:
    for in_place, tensors in run(copied):
        assert in_place
        assert same(tensors[0], torch.full((3,), 1))
        assert torch.equal(tensors[1], torch.ones(2, 2))
        assert same(tensors[2], torch.full((), True))


def interleaved() -> tuple[list[float], list[float]]:
    """The user's messages and thinwire's at the same time, in an order that differs between ranks."""
    transport = ProcessGroupTransport()
    strategy, model = strategy_of("powersgd"), Odd()
    replica = simulate.replica_of(model, rank=transport.rank, size=transport.size)
    exchange = strategy.before_update(replica, strategy.init(replica))
    set_gradients(model, 0, transport.rank)
    message, total = torch.full((3,), 7.0 * transport.rank), torch.full((3,), transport.rank + 1.0)
    if transport.rank == 0:  # starts to receive the user's message first; it arrives after everything else
        works = [dist.irecv(message, 1), dist.all_reduce(total, async_op=True)]
        transport.run(exchange)
    else:
        transport.run(exchange)
        works = [dist.isend(message, 0), dist.all_reduce(total, async_op=True)]
    for work in works:
        work.wait()
    return message.tolist(), total.tolist()


def test_the_transport_does_not_mix_with_the_users_collectives() -> None:
    assert run(interleaved, timeout=30) == [([7.0] * 3, [3.0] * 3)] * 2


def groups_of_two() -> dict[str, bool]:
    first, second = ProcessGroupTransport(), ProcessGroupTransport()
    separate = first.group is not second.group
    first.close()
    third = ProcessGroupTransport()
    return {
        "separate": separate,
        "taken over": third.gather(b"x") == [b"x"] * dist.get_world_size(),
        "not shared": third.group is not second.group,
    }


def test_a_transport_has_its_own_group_until_it_is_closed() -> None:
    for result in run(groups_of_two):
        assert result == {"separate": True, "taken over": True, "not shared": True}


def closed_twice() -> bool:
    transport = ProcessGroupTransport()
    transport.close()
    transport.close()
    return ProcessGroupTransport().group is not ProcessGroupTransport().group


def test_closing_twice_releases_the_group_once() -> None:
    assert run(closed_twice) == [True, True]


def used_after_destroy() -> tuple[str, str]:
    transport = ProcessGroupTransport()
    store = dist.PrefixStore("again", dist.distributed_c10d._get_default_store())
    rank, size = transport.rank, transport.size
    dist.destroy_process_group()
    gc.collect()
    error = error_of(lambda: transport.gather(b"x"))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    assert ProcessGroupTransport().gather(b"y") == [b"y"] * size
    return error


def test_a_destroyed_group_is_a_clear_error_and_a_new_one_works() -> None:
    for kind, text in run(used_after_destroy):
        assert kind == "RuntimeError"
        assert "destroyed" in text


def attached_again_after_destroy() -> list[bool]:
    """Initialize torch.distributed several times in one process, each time with a group that was released before."""
    store = dist.distributed_c10d._get_default_store()
    rank, size = dist.get_rank(), dist.get_world_size()
    results = []
    for i in range(3):
        transport = ProcessGroupTransport()
        transport.close()  # for reuse, but not after destroy_process_group()
        dist.destroy_process_group()
        dist.init_process_group("gloo", store=dist.PrefixStore(str(i), store), rank=rank, world_size=size)
        results.append(ProcessGroupTransport().gather(bytes([rank])) == [bytes([r]) for r in range(size)])
    return results


def test_a_group_does_not_outlive_torch_distributed() -> None:
    assert run(attached_again_after_destroy) == [[True] * 3] * 2


def test_without_torch_distributed_the_error_says_how_to_start_it() -> None:
    with pytest.raises(RuntimeError, match=r"torchrun.*init_process_group"):
        ProcessGroupTransport()


def in_a_subgroup() -> tuple[int, int, list[bytes]] | None:
    members = [1, 3]
    group = dist.new_group(members)
    if dist.get_rank() not in members:
        return None
    transport = ProcessGroupTransport(group)
    return transport.rank, transport.size, transport.gather(bytes([dist.get_rank()]))


def test_ranks_of_a_subgroup_are_numbered_from_0() -> None:
    assert run(in_a_subgroup, ranks=4) == [None, (0, 2, [b"\x01", b"\x03"]), None, (1, 2, [b"\x01", b"\x03"])]


def test_nccl_gets_a_batch_even_of_one_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    # For a single operation outside of a batch, NCCL creates a communicator of the two ranks and waits for both.
    batches: list[list[object]] = []
    monkeypatch.setattr(dist, "P2POp", lambda op, x, group, group_peer: (op, group_peer))
    monkeypatch.setattr(dist, "batch_isend_irecv", lambda ops: batches.append(ops) or [])
    process_group._start([(dist.isend, torch.zeros(1), 2)], None, batched=True)
    assert batches == [[(dist.isend, 2)]]
