import io

import pytest
from rich.console import Console

import thinwire
from thinwire import extend, inspect
from thinwire.lab.sizing.compare_sizes import compare
from thinwire.lab.sizing.sizes import Sizer, total

BASIC = ("dense", "fp16", "int8", "sign", "topk", "powersgd", "powersgd-half", "ef21", "dgc", "randomk")


@pytest.fixture(scope="module")
def lenet():
    return Sizer.of_model("lenet", ranks=4, steps=2)


def test_dense_has_the_bytes_of_the_gradients_and_of_an_all_reduce(lenet):
    size = total(lenet.measure("dense"))
    assert size.elements == 61_706
    assert size.payload == size.dense == 4 * 61_706
    assert size.link == pytest.approx(2 * 3 / 4 * size.dense, rel=1e-3)
    assert size.ratio == 1


def test_kinds_add_up_to_the_model(lenet):
    kinds = lenet.measure("topk")
    assert kinds.keys() == {"dense", "small ones"}, "both convolutions are small enough to be fused"
    assert lenet.measure("powersgd").keys() == {"conv", "dense", "small ones"}, "low rank keeps their shapes"
    assert total(kinds).elements == 61_706
    assert sum(size.tensors for size in kinds.values()) == 10


def test_time_on_a_link_is_its_bytes_over_its_bandwidth(lenet):
    size = total(lenet.measure("fp16"))
    assert size.seconds()["100 Mbit/s"] == pytest.approx(size.link * 8 / 100e6)


def test_sizes_are_those_after_the_warm_up(lenet):
    method = thinwire.ErrorFeedback(thinwire.TopK(0.01))
    assert total(lenet.measure(thinwire.WarmUp(1000, method))) == total(lenet.measure(method))


def test_sharded_stays_flat_while_gathered_grows_and_both_are_shown():
    links = {}
    for ranks in (4, 16):
        compared = compare("Quantize(8)", "lenet", ranks, steps=1)
        links[ranks] = {name: size.link for name, size in compared.forms.items()}
        assert links[ranks]["sharded instead"] < 0.55 * links[ranks]["fp16"]
    assert links[16]["this method"] > 4 * links[4]["this method"]
    assert links[16]["sharded instead"] < 1.3 * links[4]["sharded instead"]


@pytest.mark.parametrize("method", ["server:fp16", "server:adacomp", "server:local"])
def test_a_server_and_a_worker_have_separate_rows(method):
    forms = compare(method, "lenet", 4, steps=1).forms
    assert "this method" not in forms
    assert forms["at its server"].link == pytest.approx(3 * forms["at a worker"].link, rel=0.02)


@pytest.mark.parametrize(("rank", "ratio"), [(1, 243), (2, 136), (4, 72)])
def test_power_sgd_on_resnet18_has_the_published_ratios(rank, ratio):
    sizer = Sizer.of_model("resnet18", ranks=2, steps=1)
    size = total(sizer.measure(thinwire.ErrorFeedback(thinwire.PowerSGD(rank))))
    assert round(size.ratio) == ratio


def test_a_rotating_leader_is_measured_over_a_full_cycle():
    sizes = Sizer.of_model("lenet", ranks=4, steps=2).measure("led")
    # Each rank sends its values in every step, and positions and scales in one of four steps.
    values, of_two = sizes["joined ones"].payload, Sizer.of_model("lenet", ranks=2, steps=2).measure("led")
    quarter = of_two["joined ones"].payload - values  # with two ranks, a half instead of a quarter of them
    assert 0 < quarter < values
    assert Sizer.of_model("lenet", ranks=1, steps=1).measure("led")["joined ones"].payload == values + 3 * quarter


DEPENDENT = ("Server(TopK(0.01), Nonzero())", "Sharded(TopK(0.01), Nonzero())", "server:led", "server:topk", "lgc-ps")


@pytest.mark.parametrize("method", [*BASIC, *DEPENDENT, "Server(LeaderTopK(0.01), Identity())", "led"])
def test_bytes_are_those_of_simulated_ranks_with_gradients_of_their_own(lenet, method):
    strategy = thinwire.strategy_of(thinwire.settled(method))
    servers = inspect.servers(strategy)
    kinds: dict[str, list[extend.Unit]] = {}
    for unit in strategy.units(lenet.replica):
        kinds.setdefault(unit.kind(lenet.replica), []).append(unit)
    for kind, size in lenet.measure(method).items():
        payload, link, worker = lenet.simulated(strategy, kinds[kind], servers)
        assert (size.payload, size.link) == pytest.approx((payload, link), rel=1e-3)
        assert (size.worker is None) == (worker is None)
        assert worker is None or size.worker == pytest.approx(worker, rel=1e-3)


def test_one_rank_is_an_error():
    with pytest.raises(ValueError, match="2 ranks or more"):
        compare("fp16", "lenet", ranks=1, steps=1)


@pytest.mark.parametrize("iterations", [1, 2])
def test_power_gossip_sends_one_factor_per_iteration_to_each_neighbor(iterations):
    method = f"EdgeGossip(PowerIteration(1, iterations={iterations}))"
    sizer = Sizer.of_model("resnet20", ranks=8, steps=2)
    size = total(sizer.measure(method))
    shapes = [p.shape for p in sizer.replica.parameters.values()]
    matrices = sum(shape[0] + shape[1:].numel() for shape in shapes if len(shape) > 1)
    vectors = sum(shape.numel() for shape in shapes if len(shape) == 1)
    # The left factors in every second iteration, the right ones in the others.
    to_each = 4 * (iterations / 2 * matrices + vectors)
    assert size.payload == size.link == 2 * to_each, "two neighbors on a ring"


@pytest.mark.parametrize(("method", "receivers", "weight"), [("dpsgd", 2, 0), ("sgp", 1, 8), ("osgp", 1, 8)])
def test_gossip_encodes_parameters_once_and_sends_them_to_each_neighbor(lenet, method, receivers, weight):
    size = total(lenet.measure(method))
    assert size.payload == 4 * 61_706 + weight, "a push also sends its weight"
    assert size.link == receivers * size.payload


def test_decentralized_methods_are_compared_with_dpsgd_within_80_columns():
    compared = compare("powergossip", "lenet", 8, steps=2)
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(compared.shown())
    text = console.export_text()
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    row = next(line for line in text.splitlines() if "this method" in line).split()
    forms = compared.forms
    assert row[4:6] == [f"{forms[name].link / forms['this method'].link:.1f}x" for name in ("dense", "dpsgd")]
    assert "dpsgd" not in compare("fp16", "lenet", 2, steps=1).forms
