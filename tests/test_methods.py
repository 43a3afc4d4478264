import pytest
import torch
from torch import nn

import thinwire
from tests.attach.training import DECENTRALIZED, NAMES
from tests.helpers import exchanged
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
from .rehearsal import Rehearsal

every_name = pytest.mark.parametrize("name", METHODS)
LARGE = 256 * 256


@every_name
def test_a_method_is_known_by_its_name_and_says_when_to_use_it(name: str) -> None:
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
        outcomes = Simulated(ranks).run([strategy.before_update(r, s) for r, s in zip(replicas, states, strict=True)])
        states = [outcome.state for outcome in outcomes]
    for replica in replicas:
        for p in replica.parameters.values():
            assert p.grad is not None
            assert p.grad.isfinite().all()
            assert p.grad.abs().max() <= 4  # twice the mean's 1, and what was left unsaid of it


@pytest.mark.parametrize("name", DECENTRALIZED)
def test_every_method_of_neighbours_keeps_a_small_model_together(name: str) -> None:
    ranks = 4
    models = [nn.Sequential(nn.Linear(30, 20), nn.LayerNorm(20)) for _ in range(ranks)]
    for model in models:
        model.load_state_dict(models[0].state_dict())
    between = Rehearsal(strategy_of(name), [replica_of(m, rank=r, size=ranks) for r, m in enumerate(models)])
    for step in range(30):
        between.before_update()
        for rank, model in enumerate(models):
            for p in model.parameters():
                p.data += 0.01 * torch.randn(p.shape, generator=torch.Generator().manual_seed(10 * step + rank))
        between.after_update()
    apart = between.consensus().distance
    assert 0 < apart < 0.2, "each goes its own way, and not too far"
    assert between.meters[0].consensus == apart
    assert between.meters[0].payload_bytes > 0


def metered(name: str, ranks: int) -> tuple[float, float, int]:
    """What a method's payload and its busiest link are, as parts of a plain all-reduce's, and its rounds, per step."""
    strategy, transport = strategy_of(name), Simulated(ranks)
    replicas = [replica_of(nn.Linear(256, 256, bias=False), rank=rank, size=ranks) for rank in range(ranks)]
    states = [strategy.init(r) for r in replicas]
    steps = 2  # left and right factors take turns
    for step in range(steps):
        for replica in replicas:
            generator = torch.Generator().manual_seed(10 * step + replica.rank)
            for p in replica.parameters.values():
                p.grad = torch.randn(p.shape, generator=generator)
        outcomes = transport.run([exchanged(strategy, r, s) for r, s in zip(replicas, states, strict=True)])
        states = [outcome.state for outcome in outcomes]
    payload = max(meter.payload_bytes for meter in transport.meters) / steps
    link = max(meter.link_bytes for meter in transport.meters) / steps
    return payload / (4 * LARGE), link / (2 * (ranks - 1) / ranks * 4 * LARGE), transport.meters[0].rounds // steps


# What the line of each method promises: payload per entry, in bits.
@pytest.mark.parametrize(("name", "bits"), [("dense", 32), ("fp16", 16), ("bf16", 16), ("ternary", 2), ("sign", 1)])
def test_an_entry_takes_the_bits_that_the_method_promises(name: str, bits: float) -> None:
    payload, _, _ = metered(name, 2)
    assert payload == pytest.approx(bits / 32, rel=1e-3)


@pytest.mark.parametrize("ranks", [2, 4, 16])
@pytest.mark.parametrize(("name", "least"), [("int8", 4), ("int4", 8), ("fp16", 2), ("powersgd", 30)])
def test_what_is_flat_saves_as_much_on_many_ranks_as_on_few(name: str, least: float, ranks: int) -> None:
    _, link, _ = metered(name, ranks)
    assert link <= 1.1 / least  # a tenth for the scales


def test_what_is_for_few_ranks_costs_more_on_many() -> None:
    for name in ("ternary", "sign", "topk"):
        assert metered(name, 8)[1] > 3 * metered(name, 2)[1]


def test_half_of_powersgd_takes_half_its_bytes_and_rounds() -> None:
    payload, _, rounds = metered("powersgd-half", 2)
    whole, _, rounds_of_whole = metered("powersgd", 2)
    assert (payload, rounds) == (whole / 2, rounds_of_whole // 2)


def test_a_codec_a_reducer_and_a_strategy_are_methods() -> None:
    assert strategy_of(TopK(0.1)) == DataParallel(TopK(0.1))
    assert strategy_of(ErrorFeedback(TopK(0.1))) == DataParallel(ErrorFeedback(TopK(0.1)))
    strategy = DataParallel(Average(), fuse_below=3)
    assert strategy_of(strategy) is strategy
    assert strategy_of(repr(strategy)) == strategy


@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
def test_the_shortest_notation_stands_for_the_strategy(strategy: DataParallel) -> None:
    assert strategy_of(notation_of(strategy)) == strategy
    assert len(notation_of(strategy)) <= len(repr(strategy))


def test_the_shortest_notation_leaves_out_what_goes_without_saying() -> None:
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
def test_what_is_no_method_is_named(wrong: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        strategy_of(wrong)  # type: ignore[arg-type]


def test_a_wrong_notation_is_shown_with_its_place() -> None:
    with pytest.raises(NotationError, match=r"did you mean TopK\?[\s\S]*\^\^\^\^"):
        strategy_of("ErrorFeedback(Topk(0.1))")


def test_a_name_that_is_a_notation_too_would_be_ambiguous() -> None:
    for name in METHODS:
        with pytest.raises(NotationError):
            parse(name)


def test_a_short_name_has_its_other_forms_too() -> None:
    assert (
        repr(thinwire.sharded("topk"))
        == "ErrorFeedback(Sharded(Chain(TopK(0.01), Cast('float16')), Chain(TopK(0.01), Cast('float16'))))"
    )
    assert repr(thinwire.gathered("int8")) == "ErrorFeedback(Average(Quantize(8)))"
    assert thinwire.settled("WarmUp(3, TopK(0.1))") == TopK(0.1)


def test_the_name_of_a_class_alone_is_told_to_need_its_settings() -> None:
    with pytest.raises(ValueError, match=r"TopK\(\.\.\.\)"):
        strategy_of("TopK")
