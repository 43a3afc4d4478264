import pytest
import torch
from torch import nn

import thinwire
from tests.attach.training import DECENTRALIZED, NAMES
from tests.helpers import exchange_gradients
from thinwire import (
    Average,
    DataParallel,
    ErrorFeedback,
    Identity,
    NotationError,
    PowerSGD,
    TopK,
    methods,
    parse,
    strategy_of,
)
from thinwire.extend import Strategy
from thinwire.methods import METHODS, notation_of
from thinwire.simulate import Simulated, replica_of

from .contracts.table import STRATEGIES
from .reference_run import ReferenceRun

every_name = pytest.mark.parametrize("name", METHODS)
LARGE = 256 * 256


@every_name
def test_every_method_has_a_lower_case_name_and_a_one_line_description(name: str) -> None:
    method = methods.METHODS[name]
    assert method.name == name == name.lower()
    assert method.use.endswith(".")
    assert "\n" not in method.use


@every_name
def test_a_short_name_stands_for_the_notation_of_its_method(name: str) -> None:
    built = METHODS[name].built
    assert strategy_of(name) == (built if isinstance(built, Strategy) else DataParallel(built))
    assert strategy_of(name) == strategy_of(repr(built)) == strategy_of(built)


def test_no_two_names_stand_for_the_same_method() -> None:
    assert len({repr(method.built) for method in METHODS.values()}) == len(METHODS)


@pytest.mark.parametrize("name", NAMES)
def test_every_method_reduces_a_small_model(name: str) -> None:
    ranks = 3
    strategy = strategy_of(name)
    replicas = [
        replica_of(nn.Sequential(nn.Linear(30, 20), nn.LayerNorm(20)), rank=r, size=ranks) for r in range(ranks)
    ]
    states = [strategy.init(r) for r in replicas]
    for _ in range(2):
        for replica in replicas:
            for p in replica.parameters.values():
                p.grad = torch.full_like(p, replica.rank)
        results = Simulated(ranks).run([strategy.before_update(r, s) for r, s in zip(replicas, states, strict=True)])
        states = [result.state for result in results]
    for replica in replicas:
        for p in replica.parameters.values():
            assert p.grad is not None
            assert p.grad.isfinite().all()
            assert p.grad.abs().max() <= 4  # twice the mean of 1, and the residual


@pytest.mark.parametrize("name", DECENTRALIZED)
def test_every_decentralized_method_bounds_the_consensus_distance_of_a_small_model(name: str) -> None:
    ranks = 4
    models = [nn.Sequential(nn.Linear(30, 20), nn.LayerNorm(20)) for _ in range(ranks)]
    for model in models:
        model.load_state_dict(models[0].state_dict())
    reference = ReferenceRun(strategy_of(name), [replica_of(m, rank=r, size=ranks) for r, m in enumerate(models)])
    for step in range(30):
        reference.before_update()
        for rank, model in enumerate(models):
            for p in model.parameters():
                p.data += 0.01 * torch.randn(p.shape, generator=torch.Generator().manual_seed(10 * step + rank))
        reference.after_update()
    distance = reference.consensus().distance
    assert 0 < distance < 0.2, "replicas differ, but not much"
    assert reference.meters[0].consensus == distance
    assert reference.meters[0].payload_bytes > 0


def metered(name: str, ranks: int) -> tuple[float, float, int]:
    """Per step: payload bytes relative to dense, busiest link relative to a plain all-reduce, and rounds."""
    strategy, transport = strategy_of(name), Simulated(ranks)
    replicas = [replica_of(nn.Linear(256, 256, bias=False), rank=rank, size=ranks) for rank in range(ranks)]
    states = [strategy.init(r) for r in replicas]
    steps = 2  # left and right factors take turns
    for step in range(steps):
        for replica in replicas:
            generator = torch.Generator().manual_seed(10 * step + replica.rank)
            for p in replica.parameters.values():
                p.grad = torch.randn(p.shape, generator=generator)
        results = transport.run([exchange_gradients(strategy, r, s) for r, s in zip(replicas, states, strict=True)])
        states = [result.state for result in results]
    payload = max(meter.payload_bytes for meter in transport.meters) / steps
    link = max(meter.link_bytes for meter in transport.meters) / steps
    return payload / (4 * LARGE), link / (2 * (ranks - 1) / ranks * 4 * LARGE), transport.meters[0].rounds // steps


# Payload bits per entry, as the descriptions of the methods state them.
@pytest.mark.parametrize(("name", "bits"), [("dense", 32), ("fp16", 16), ("bf16", 16), ("ternary", 2), ("sign", 1)])
def test_the_payload_has_the_bits_per_entry_that_the_description_states(name: str, bits: float) -> None:
    payload, _, _ = metered(name, 2)
    assert payload == pytest.approx(bits / 32, rel=1e-3)


@pytest.mark.parametrize("ranks", [2, 4, 16])
@pytest.mark.parametrize(("name", "ratio"), [("int8", 4), ("int4", 8), ("fp16", 2), ("powersgd", 30)])
def test_link_bytes_of_sharded_methods_do_not_grow_with_the_world_size(name: str, ratio: float, ranks: int) -> None:
    _, link, _ = metered(name, ranks)
    assert link <= 1.1 / ratio  # 10 % for the scales


def test_link_bytes_of_gathered_methods_grow_with_the_world_size() -> None:
    for name in ("ternary", "sign", "topk"):
        assert metered(name, 8)[1] > 3 * metered(name, 2)[1]


def test_powersgd_half_takes_half_the_bytes_and_rounds_of_powersgd() -> None:
    payload, _, rounds = metered("powersgd-half", 2)
    full_payload, _, full_rounds = metered("powersgd", 2)
    assert (payload, rounds) == (full_payload / 2, full_rounds // 2)


def test_codecs_reducers_and_strategies_are_methods() -> None:
    assert strategy_of(TopK(0.1)) == DataParallel(TopK(0.1))
    assert strategy_of(ErrorFeedback(TopK(0.1))) == DataParallel(ErrorFeedback(TopK(0.1)))
    strategy = DataParallel(Average(), fuse_below=3)
    assert strategy_of(strategy) is strategy
    assert strategy_of(repr(strategy)) == strategy


@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
def test_the_shortest_notation_stands_for_the_strategy(strategy: DataParallel) -> None:
    assert strategy_of(notation_of(strategy)) == strategy
    assert len(notation_of(strategy)) <= len(repr(strategy))


def test_the_shortest_notation_omits_data_parallel_and_defaults() -> None:
    assert notation_of(DataParallel(ErrorFeedback(PowerSGD(2)))) == "ErrorFeedback(PowerSGD(2))"
    assert "fuse_below=3" in notation_of(DataParallel(Identity(), fuse_below=3))


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ("powersdg", "unknown method 'powersdg' \\(did you mean 'powersgd'\\?\\)"),
        ("zzzzzz", "unknown method 'zzzzzz' \\(known: dense, "),
        ("TopK", "unknown method 'TopK'"),
        ("When(TopK(0.1))", "describes When\\(TopK\\(0.1\\)\\), which is not a method"),
        ("0.5", "describes 0.5|unknown method"),
        (0.5, "not 0.5"),
        (None, "not None"),
        (TopK, "is a codec, a reducer, a strategy"),
    ],
)
def test_an_invalid_method_is_an_error_that_names_it(wrong: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        strategy_of(wrong)  # type: ignore[arg-type]


def test_a_notation_error_points_at_the_wrong_name() -> None:
    with pytest.raises(NotationError, match=r"did you mean TopK\?[\s\S]*\^\^\^\^"):
        strategy_of("ErrorFeedback(Topk(0.1))")


def test_no_short_name_is_also_a_notation() -> None:
    for name in METHODS:
        with pytest.raises(NotationError):
            parse(name)


def test_short_names_can_be_sharded_gathered_and_settled() -> None:
    assert (
        repr(thinwire.sharded("topk"))
        == "ErrorFeedback(Sharded(Chain(TopK(0.01), Cast('float16')), Chain(TopK(0.01), Cast('float16'))))"
    )
    assert repr(thinwire.gathered("int8")) == "ErrorFeedback(Average(Quantize(8)))"
    assert thinwire.settled("WarmUp(3, TopK(0.1))") == TopK(0.1)


def test_a_class_name_without_settings_is_an_error_that_shows_brackets() -> None:
    with pytest.raises(ValueError, match=r"TopK\(\.\.\.\)"):
        strategy_of("TopK")
