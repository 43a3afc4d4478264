"""What replicas are fed: each its own, and all devices of one replica the same."""

import pytest
import torch
from torch import Tensor, nn

import thinwire
from tests.attach.processes import run
from thinwire import Replicator
from thinwire.simulate import InProcessCluster


def fed(seed: int | None, devices: int = 1) -> tuple[int, list[float]]:
    """The replica, and what it is fed in two runs; in between, what is on one of its devices draws there."""
    if seed is not None:
        torch.manual_seed(seed)  # as scripts do that know of no replicas
    replicator = Replicator(devices_per_replica=devices)
    part = replicator.context.logical_device(devices - 1).place(nn.Dropout(0.5))

    def inputs(context: thinwire.Context) -> list[Tensor]:
        return [torch.rand(4) for _ in range(2)]

    def step(context: thinwire.Context, x: Tensor) -> list[float]:
        part(x)
        return x.tolist()

    return replicator.rank, [number for _ in range(2) for x in replicator.run(step, inputs) for number in x]


@pytest.mark.parametrize("seed", [None, 0])
@pytest.mark.parametrize("ranks", ["threads", "processes"])
def test_no_replica_is_fed_what_another_one_is(ranks, seed):
    found = InProcessCluster(5).run(lambda: fed(seed)) if ranks == "threads" else run(fed, seed, ranks=5)
    numbers = [x for _, given in found for x in given]
    assert len(numbers) == len(set(numbers)) == 5 * 16


@pytest.mark.parametrize("seed", [None, 0])
@pytest.mark.parametrize("ranks", ["threads", "processes"])
def test_all_devices_of_a_replica_are_fed_the_same(ranks, seed):
    found = InProcessCluster(4).run(lambda: fed(seed, 2)) if ranks == "threads" else run(fed, seed, 2, ranks=4)
    assert [replica for replica, _ in found] == [0, 0, 1, 1]
    assert found[0] == found[1]
    assert found[2] == found[3]
    assert not set(found[0][1]) & set(found[2][1])


def of_other_lengths(steps: int | None = None) -> str | int:
    replicator = Replicator("dpsgd")  # by which nobody waits for all others
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    replicator.wrap(model, optimizer)
    try:
        replicator.run(lambda context, x: optimizer.step(), lambda context: range(3 + context.rank % 2), steps)
    except thinwire.ContractError as error:
        return str(error)
    return replicator.step


@pytest.mark.parametrize("ranks", ["threads", "processes"])
def test_inputs_that_are_known_to_differ_in_length_are_told_before_the_first_step(ranks):
    first, *others = InProcessCluster(3).run(of_other_lengths) if ranks == "threads" else run(of_other_lengths, ranks=3)
    assert all(other == first for other in others)
    assert first.startswith("the inputs of run() at test_inputs.py:")
    assert "(batches: replica 0 3, replica 1 4, replica 2 3): give all replicas as many" in first


def test_so_many_steps_as_all_have_inputs_for():
    assert InProcessCluster(3).run(lambda: of_other_lengths(steps=3)) == [3, 3, 3]


def test_shares_are_of_one_length_and_nobody_has_what_another_has():
    shares = InProcessCluster(3).run(lambda: Replicator().context.share(list("abcdefghijk")))
    assert [list(share) for share in shares] == [["a", "d", "g"], ["b", "e", "h"], ["c", "f", "i"]]
    first = shares[0]
    assert (len(first), first[-1], first[1:], first[::-1]) == (3, "g", ["d", "g"], ["g", "d", "a"])
    assert list(torch.utils.data.DataLoader(first, batch_size=2)) == [["a", "d"], ["g"]]
    for beyond in (3, -4):
        with pytest.raises(IndexError, match=f"a share of 3 examples has none with the number {beyond}"):
            first[beyond]
    with pytest.raises(ValueError, match="2 examples cannot be shared by 3 replicas"):
        InProcessCluster(3).run(lambda: Replicator().context.share([1, 2]))
