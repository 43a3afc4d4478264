import pytest
from torch import nn

from tests.attach.training import NAMES
from thinwire import (
    DGC,
    AdaComp,
    Average,
    Cast,
    Choose,
    DataParallel,
    Difference,
    ErrorFeedback,
    Identity,
    LocalSGD,
    Nonzero,
    PowerSGD,
    Quantize,
    Server,
    Sharded,
    Sign,
    TopK,
    WarmUp,
    When,
    gathered,
    served,
    settled,
    sharded,
    strategy_of,
)
from thinwire.inspect import dedicated_servers, servers
from thinwire.methods import METHODS, notation_of
from thinwire.simulate import replica_of

from ..reference_run import ReferenceRun


@pytest.mark.parametrize(
    ("method", "form"),
    [
        (TopK(0.1), Sharded(TopK(0.1), TopK(0.1))),
        (Average(Quantize(8)), Sharded(Quantize(8), Quantize(8))),
        (ErrorFeedback(Sign()), ErrorFeedback(Sharded(Sign(), Sign()))),
        (ErrorFeedback(Sign(), decay=0.5), ErrorFeedback(Sharded(Sign(), Sign()), decay=0.5)),
        (DataParallel(Sign(), fuse_below=7), DataParallel(Sharded(Sign(), Sign()), fuse_below=7)),
        (Average(), Average()),
        (Cast("float16"), Cast("float16")),
        (ErrorFeedback(PowerSGD(2)), ErrorFeedback(PowerSGD(2))),
        (PowerSGD(2, codec=Quantize(8)), PowerSGD(2, codec=Quantize(8))),
        (WarmUp(3, Sign()), WarmUp(3, Sharded(Sign(), Sign()))),
        (
            Choose(When(Sign(), min_dim=2), otherwise=Cast("float16")),
            Choose(When(Sharded(Sign(), Sign()), min_dim=2), otherwise=Cast("float16")),
        ),
    ],
    ids=repr,
)
def test_sharded_rewrites_codecs_that_are_not_linear(method: object, form: object) -> None:
    assert sharded(method) == form  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("method", "form"),
    [
        (Sharded(Quantize(8), Quantize(4)), Average(Quantize(8))),
        (ErrorFeedback(Sharded(Sign(), Sign())), ErrorFeedback(Average(Sign()))),
        (WarmUp(3, Sharded(Sign(), Sign())), WarmUp(3, Average(Sign()))),
        (ErrorFeedback(TopK(0.1)), ErrorFeedback(TopK(0.1))),
    ],
    ids=repr,
)
def test_gathered_rewrites_sharded_reducers(method: object, form: object) -> None:
    assert gathered(method) == form  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("method", "form"),
    [
        (WarmUp(3, Sign()), Sign()),
        (ErrorFeedback(WarmUp(3, Sign())), ErrorFeedback(Sign())),
        (WarmUp(3, WarmUp(4, Sign())), Sign()),
        (WarmUp(3, ErrorFeedback(WarmUp(4, Sign()))), ErrorFeedback(Sign())),
        (DataParallel(WarmUp(3, Sign())), DataParallel(Sign())),
        (DGC(0.01, ramp_steps=50, clip=2.0), DGC(0.01, clip=2.0)),
        (WarmUp(3, Choose(When(DGC(ramp_steps=9), min_dim=2))), Choose(When(DGC(), min_dim=2))),
        (Average(Identity()), Average()),
    ],
    ids=repr,
)
def test_settled_removes_warm_ups(method: object, form: object) -> None:
    assert settled(method) == form  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("method", "form"),
    [
        (Average(), Server(Identity(), Identity())),
        (TopK(0.1), Server(TopK(0.1), TopK(0.1))),
        (ErrorFeedback(Sharded(Sign(), Quantize(8))), ErrorFeedback(Server(Sign(), Quantize(8)))),
        (ErrorFeedback(PowerSGD(2), decay=0.9), ErrorFeedback(Server(PowerSGD(2), Identity()), decay=0.9)),
        (AdaComp(), Server(AdaComp(), Nonzero())),
        (Difference(Sign()), Difference(Server(Sign(), Sign()))),
        (WarmUp(3, Sign()), WarmUp(3, Server(Sign(), Sign()), first=Server(Identity(), Identity()))),
        (
            DataParallel(Choose(When(DGC(), min_dim=2), otherwise=Cast("float16"))),
            DataParallel(
                Choose(When(Server(DGC(), Nonzero()), min_dim=2), otherwise=Server(Cast("float16"), Cast("float16")))
            ),
        ),
        (LocalSGD(Sign(), every=7), LocalSGD(Server(Sign(), Sign()), every=7)),
        (Server(Sign(), Quantize(8), rank=2), Server(Sign(), Quantize(8), rank=2)),
    ],
    ids=repr,
)
def test_served_sends_everything_through_a_server(method: object, form: object) -> None:
    assert served(method) == form  # type: ignore[arg-type]
    assert served(form) == form  # type: ignore[arg-type]
    assert servers(served(form, rank=1)) == {1}  # type: ignore[arg-type]


def test_served_sets_the_rank_and_dedicated() -> None:
    method = served("int8", rank=3, dedicated=True)
    assert method == ErrorFeedback(Server(Quantize(8), Quantize(8), rank=3, dedicated=True))
    assert (servers(method), dedicated_servers(method)) == ({3}, {3})
    assert (servers(served("int8")), dedicated_servers(served("int8"))) == ({0}, set())
    assert settled(served(DGC(ramp_steps=9))) == Server(DGC(), Nonzero())


@pytest.mark.parametrize("name", NAMES)
def test_the_prefix_server_gives_the_served_form(name: str) -> None:
    strategy = strategy_of(f"server:{name}")
    assert strategy == strategy_of(served(name))
    assert servers(strategy) == {0}
    assert strategy_of(notation_of(strategy)) == strategy


@pytest.mark.parametrize("name", ["easgd", "local"])
def test_the_prefix_server_works_with_local_steps(name: str) -> None:
    assert servers(strategy_of(f"server:{name}")) == {0}


def test_warm_up_steps_of_local_sgd_use_the_server_too() -> None:
    ranks = [replica_of(nn.Linear(3, 2), rank=r, size=3) for r in range(3)]
    reference = ReferenceRun(served(LocalSGD(Identity(), every=2, after=3), rank=1), ranks)  # type: ignore[arg-type]
    reference.before_update()
    assert [set(meter.sent) for meter in reference.meters] == [{1}, {0, 2}, {1}]


@pytest.mark.parametrize("name", ["powergossip", "sgp", "ab", "lsgd"])
def test_a_method_without_reducers_over_all_ranks_has_no_served_form(name: str) -> None:
    with pytest.raises(ValueError, match="cannot use a parameter server: its reducers do not run over all ranks"):
        strategy_of(f"server:{name}")


def test_an_unknown_method_after_server_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown method 'topkk'"):
        strategy_of("server:topkk")


@pytest.mark.parametrize("name", METHODS)
def test_sharding_a_gathered_form_gives_the_sharded_form(name: str) -> None:
    method = METHODS[name].built
    assert sharded(gathered(sharded(method))) == sharded(method)
