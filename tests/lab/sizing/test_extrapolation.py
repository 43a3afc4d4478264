"""Extrapolated bytes equal the transport's counts, for world sizes small enough to simulate."""

from statistics import mean

import pytest
import torch

import thinwire
from tests.attach.training import NAMES
from thinwire import simulate
from thinwire.lab.sizing.extrapolation import SAMPLES, RankTraffic
from thinwire.lab.sizing.sizes import Sizer

STEPS = 2
# Sharded and gathered forms, and routes that no short name has: a server at rank 1, variable lengths, and several
# dtypes in a round.
MORE = {
    "sharded topk": thinwire.sharded("topk"),
    "gathered int8": thinwire.gathered("int8"),
    "sharded dense": thinwire.Sharded(thinwire.Identity(), thinwire.Cast("float16")),
    "variable": thinwire.Chain(thinwire.Quantize(8), thinwire.Entropy()),
    "variable server": thinwire.Server(
        thinwire.Chain(thinwire.Quantize(4), thinwire.Entropy()), thinwire.Sign(), rank=1
    ),
    "mixed": thinwire.Choose(
        thinwire.When(thinwire.Cast("float16"), max_dim=1),
        thinwire.When(thinwire.Sign(), kinds="conv"),
        otherwise=thinwire.Server(thinwire.Quantize(8), thinwire.Identity(), rank=1),
    ),
}


@pytest.fixture(scope="module")
def lenet():
    return Sizer.of_model("lenet", ranks=1, steps=STEPS)


def meters(strategy, sizer, ranks, steps=STEPS):
    """The meters of ranks that all have the same gradients and make one exchange per step."""
    sender, units = simulate.Simulated(ranks), strategy.units(sizer.replica)
    states = [strategy.init(sizer.replica) for _ in range(ranks)]
    for _ in range(steps):
        gradients = [{name: g.clone() for name, g in sizer.gradients().items()} for _ in range(ranks)]
        exchanges = [strategy.exchange(units, gradients[r], ranks, states[r]) for r in range(ranks)]
        states = [result.state for result in sender.run(exchanges)]
    return sender.meters


def busiest(strategy, sizer, ranks):
    return max(meters(strategy, sizer, ranks), key=lambda meter: meter.link_bytes)


@pytest.mark.parametrize("ranks", [2, 5])
@pytest.mark.parametrize("method", [*NAMES, *MORE])
def test_bytes_equal_those_of_simulated_ranks(lenet, method, ranks):
    strategy = thinwire.strategy_of(MORE.get(method, method))
    load = RankTraffic(strategy, lenet.replica, lenet.gradients(), ranks, STEPS).load(ranks)
    meter = busiest(strategy, lenet, ranks)
    assert load.payload * STEPS == meter.payload_bytes
    assert load.link * STEPS == meter.link_bytes


@pytest.mark.parametrize("method", [name for name in NAMES if name not in ("int8", "int4", "natural")])
def test_methods_without_shards_extrapolate_from_one_measurement(lenet, method):
    strategy = thinwire.strategy_of(method)
    exchanges = RankTraffic(strategy, lenet.replica, lenet.gradients(), 2, STEPS)
    assert not exchanges.in_shards
    meter = busiest(strategy, lenet, 6)
    assert exchanges.load(6).link * STEPS == meter.link_bytes


@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("method", ["led", "lgc", "ErrorFeedback(LeaderTopK(0.01, values=Cast('float16'), ends=True))"])
def test_with_rotating_roles_the_load_is_the_mean_over_ranks(lenet, method, ranks):
    strategy = thinwire.settled(thinwire.strategy_of(method))
    replica = lenet.replica._replace(size=ranks)
    load = RankTraffic(strategy, replica, lenet.gradients(), ranks, STEPS).load(ranks)
    counted = meters(strategy, of_size(lenet, replica), ranks, steps=ranks)  # each rank leads once
    assert load.payload == pytest.approx(mean(meter.payload_bytes for meter in counted) / ranks, rel=0.01)
    assert load.link == pytest.approx(mean(meter.link_bytes for meter in counted) / ranks, rel=0.01)


def of_size(sizer, replica):
    return Sizer(replica, replica.size, STEPS, [sizer.gradients()])


def test_shards_of_variable_size_are_estimated_from_a_sample():
    ranks, generator = SAMPLES + 4, torch.Generator().manual_seed(0)
    replica = simulate.replica_of(torch.nn.Linear(500, 400))
    gradients = {name: torch.randn(p.shape, generator=generator) for name, p in replica.parameters.items()}
    strategy = thinwire.strategy_of(thinwire.sharded(thinwire.Chain(thinwire.Quantize(8), thinwire.Entropy())))
    exchanges = RankTraffic(strategy, replica, gradients, ranks, steps=1)
    assert exchanges.varies
    counted = meters(strategy, Sizer(replica, ranks, 1, [gradients]), ranks, steps=1)
    load = exchanges.load(ranks)
    assert load.payload == pytest.approx(mean(meter.payload_bytes for meter in counted), rel=0.01)
    assert load.link == pytest.approx(mean(meter.link_bytes for meter in counted), rel=0.01)


def test_exchanges_counts_sequential_exchanges(lenet):
    def exchanges(method):
        return RankTraffic(thinwire.strategy_of(method), lenet.replica, lenet.gradients(), 4, STEPS).load(4).exchanges

    assert exchanges("dense") == 2, "a reduce-scatter and an all-gather"
    assert exchanges("Sign()") == 1
    assert exchanges("int8") == 2
    assert exchanges("powersgd") == 4, "two rounds of sums"
    assert exchanges(MORE["variable"]) == 2, "the lengths first"


def test_a_server_outside_the_world_is_an_error(lenet):
    strategy = thinwire.strategy_of("Server(Quantize(8), Quantize(8), rank=5)")
    with pytest.raises(ValueError, match="rank 5"):
        RankTraffic(strategy, lenet.replica, lenet.gradients(), 4, 1).load(4)
