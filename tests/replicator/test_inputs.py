"""What replicas are fed: each its own, and all devices of one replica the same."""

import pytest
import torch
from torch import Tensor, nn

import thinwire
from tests.attach.processes import run
from thinwire import Replicator, World


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
    found = World(5).run(lambda: fed(seed)) if ranks == "threads" else run(fed, seed, ranks=5)
    numbers = [x for _, given in found for x in given]
    assert len(numbers) == len(set(numbers)) == 5 * 16


@pytest.mark.parametrize("seed", [None, 0])
@pytest.mark.parametrize("ranks", ["threads", "processes"])
def test_all_devices_of_a_replica_are_fed_the_same(ranks, seed):
    found = World(4).run(lambda: fed(seed, 2)) if ranks == "threads" else run(fed, seed, 2, ranks=4)
    assert [replica for replica, _ in found] == [0, 0, 1, 1]
    assert found[0] == found[1]
    assert found[2] == found[3]
    assert not set(found[0][1]) & set(found[2][1])
