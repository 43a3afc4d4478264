"""Inputs: different between replicas, the same on all devices of a replica, and shares of a dataset."""

import pytest
import torch
from torch import Tensor, nn

import thinwire
from tests.attach.processes import run
from thinwire import Replicator
from thinwire.simulate import InProcessCluster


def inputs_of_two_runs(seed: int | None, devices: int = 1) -> tuple[int, list[float]]:
    """The replica and its inputs in two runs, in which a part on one of its devices draws random numbers."""
    if seed is not None:
        torch.manual_seed(seed)  # as in a script that seeds all replicas alike
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
def test_replicas_have_different_inputs_even_if_seeded_alike(ranks, seed):
    found = (
        InProcessCluster(5).run(lambda: inputs_of_two_runs(seed))
        if ranks == "threads"
        else run(inputs_of_two_runs, seed, ranks=5)
    )
    numbers = [x for _, inputs in found for x in inputs]
    assert len(numbers) == len(set(numbers)) == 5 * 16


@pytest.mark.parametrize("seed", [None, 0])
@pytest.mark.parametrize("ranks", ["threads", "processes"])
def test_all_devices_of_a_replica_have_the_same_inputs(ranks, seed):
    found = (
        InProcessCluster(4).run(lambda: inputs_of_two_runs(seed, 2))
        if ranks == "threads"
        else run(inputs_of_two_runs, seed, 2, ranks=4)
    )
    assert [replica for replica, _ in found] == [0, 0, 1, 1]
    assert found[0] == found[1]
    assert found[2] == found[3]
    assert not set(found[0][1]) & set(found[2][1])


def inputs_of_different_lengths(steps: int | None = None) -> str | int:
    replicator = Replicator("dpsgd")  # in which no replica waits for all others
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    replicator.wrap(model, optimizer)
    try:
        replicator.run(lambda context, x: optimizer.step(), lambda context: range(3 + context.rank % 2), steps)
    except thinwire.ContractError as error:
        return str(error)
    return replicator.step


@pytest.mark.parametrize("ranks", ["threads", "processes"])
def test_inputs_of_different_lengths_are_an_error_before_the_first_step(ranks):
    first, *others = (
        InProcessCluster(3).run(inputs_of_different_lengths)
        if ranks == "threads"
        else run(inputs_of_different_lengths, ranks=3)
    )
    assert all(other == first for other in others)
    assert first.startswith("the inputs of run() at test_inputs.py:")
    assert "(batches of replica 0: 3, replica 1: 4, replica 2: 3): give all replicas the same number" in first


def test_inputs_of_different_lengths_are_no_error_if_steps_are_at_most_the_shortest():
    assert InProcessCluster(3).run(lambda: inputs_of_different_lengths(steps=3)) == [3, 3, 3]


def test_shares_are_disjoint_and_of_equal_length():
    shares = InProcessCluster(3).run(lambda: Replicator().context.share(list("abcdefghijk")))
    assert [list(share) for share in shares] == [["a", "d", "g"], ["b", "e", "h"], ["c", "f", "i"]]
    first = shares[0]
    assert (len(first), first[-1], first[1:], first[::-1]) == (3, "g", ["d", "g"], ["g", "d", "a"])
    assert list(torch.utils.data.DataLoader(first, batch_size=2)) == [["a", "d"], ["g"]]
    for beyond in (3, -4):
        with pytest.raises(IndexError, match=f"index {beyond} is out of range for a share of 3 examples"):
            first[beyond]
    with pytest.raises(ValueError, match="2 examples cannot be shared by 3 replicas"):
        InProcessCluster(3).run(lambda: Replicator().context.share([1, 2]))
