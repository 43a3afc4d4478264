"""The counts of one rank equal the transport's own, to the byte, wherever a world is small enough to be made."""

from statistics import mean

import pytest
import torch

import thinwire
from tests.attach.training import NAMES
from thinwire import simulate
from thinwire.lab.sizing.extrapolation import SAMPLES, Exchanges
from thinwire.lab.sizing.sizes import Sizer

STEPS = 2
# Each sharded and gathered; and ways that no short name takes: a server elsewhere, with lengths that vary, and several
# types of numbers in a round.
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
    """What so many ranks count that all have the same gradients and hold one talk a step."""
    sender, units = simulate.Simulated(ranks), strategy.units(sizer.replica)
    states = [strategy.init(sizer.replica) for _ in range(ranks)]
    for _ in range(steps):
        said = [{name: g.clone() for name, g in sizer.gradients[0].items()} for _ in range(ranks)]
        talks = [strategy.exchange(units, said[r], ranks, states[r]) for r in range(ranks)]
        states = [outcome.state for outcome in sender.run(talks)]
    return sender.meters


def busiest(strategy, sizer, ranks):
    return max(meters(strategy, sizer, ranks), key=lambda meter: meter.link_bytes)


@pytest.mark.parametrize("ranks", [2, 5])
@pytest.mark.parametrize("method", [*NAMES, *MORE])
def test_bytes_equal_those_of_the_simulated_world(lenet, method, ranks):
    strategy = thinwire.strategy_of(MORE.get(method, method))
    load = Exchanges(strategy, lenet.replica, lenet.gradients[0], ranks, STEPS).load(ranks)
    meter = busiest(strategy, lenet, ranks)
    assert load.payload * STEPS == meter.payload_bytes
    assert load.link * STEPS == meter.link_bytes


@pytest.mark.parametrize("method", [name for name in NAMES if name not in ("int8", "int4", "natural")])
def test_what_is_not_said_in_shards_needs_no_second_measurement(lenet, method):
    strategy = thinwire.strategy_of(method)
    talks = Exchanges(strategy, lenet.replica, lenet.gradients[0], 2, STEPS)
    assert not talks.in_shards
    meter = busiest(strategy, lenet, 6)
    assert talks.load(6).link * STEPS == meter.link_bytes


@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("method", ["led", "lgc", "ErrorFeedback(LeaderTopK(0.01, values=Cast('float16'), ends=True))"])
def test_where_ranks_take_turns_it_is_the_mean_over_them(lenet, method, ranks):
    strategy = thinwire.settled(thinwire.strategy_of(method))
    replica = lenet.replica._replace(size=ranks)
    load = Exchanges(strategy, replica, lenet.gradients[0], ranks, STEPS).load(ranks)
    counted = meters(strategy, of_size(lenet, replica), ranks, steps=ranks)  # a whole turn
    assert load.payload == pytest.approx(mean(meter.payload_bytes for meter in counted) / ranks, rel=0.01)
    assert load.link == pytest.approx(mean(meter.link_bytes for meter in counted) / ranks, rel=0.01)


def of_size(sizer, replica):
    return Sizer(replica, sizer.gradients, replica.size, STEPS)


def test_shards_whose_sizes_vary_are_estimated_from_some():
    ranks, draw = SAMPLES + 4, torch.Generator().manual_seed(0)
    replica = simulate.replica_of(torch.nn.Linear(500, 400))
    gradients = {name: torch.randn(p.shape, generator=draw) for name, p in replica.parameters.items()}
    strategy = thinwire.strategy_of(thinwire.sharded(thinwire.Chain(thinwire.Quantize(8), thinwire.Entropy())))
    talks = Exchanges(strategy, replica, gradients, ranks, steps=1)
    assert talks.varies
    counted = meters(strategy, Sizer(replica, [gradients], ranks, steps=1), ranks, steps=1)
    load = talks.load(ranks)
    assert load.payload == pytest.approx(mean(meter.payload_bytes for meter in counted), rel=0.01)
    assert load.link == pytest.approx(mean(meter.link_bytes for meter in counted), rel=0.01)


def test_exchanges_are_those_that_wait_for_one_another(lenet):
    def exchanges(method):
        return Exchanges(thinwire.strategy_of(method), lenet.replica, lenet.gradients[0], 4, STEPS).load(4).exchanges

    assert exchanges("dense") == 2, "signals to where they are summed, and the sums back"
    assert exchanges("Sign()") == 1
    assert exchanges("int8") == 2
    assert exchanges("powersgd") == 4, "two rounds of sums"
    assert exchanges(MORE["variable"]) == 2, "the lengths first"


def test_a_server_outside_the_world_is_refused(lenet):
    strategy = thinwire.strategy_of("Server(Quantize(8), Quantize(8), rank=5)")
    with pytest.raises(ValueError, match="rank 5"):
        Exchanges(strategy, lenet.replica, lenet.gradients[0], 4, 1).load(4)
