import pytest
import torch
from torch import Tensor, nn

from thinwire import (
    Average,
    Cast,
    Choose,
    DataParallel,
    ErrorFeedback,
    Identity,
    PowerSGD,
    Quantize,
    Server,
    Sharded,
    Sign,
    When,
)
from thinwire.extend import Reducer
from thinwire.simulate import Simulated, replica_of

from ..helpers import random, same_bits


class Zoo(nn.Module):
    """Parameters of many sizes and two dtypes."""

    def __init__(self) -> None:
        super().__init__()
        self.small = nn.Linear(3, 4)
        self.large = nn.Linear(80, 90)
        self.norm = nn.LayerNorm(6)
        self.half = nn.Linear(2, 3, dtype=torch.float16)


def reduced(strategy: DataParallel, ranks: int = 2) -> dict[str, Tensor]:
    replicas = [replica_of(Zoo(), rank=rank, size=ranks) for rank in range(ranks)]
    for replica in replicas:
        for i, p in enumerate(replica.parameters.values()):
            p.grad = random(*p.shape, seed=10 * i + replica.rank, dtype=p.dtype)
    Simulated(ranks).run([strategy.before_update(r, strategy.init(r)) for r in replicas])
    return {name: p.grad for name, p in replicas[0].parameters.items() if p.grad is not None}


def names(strategy: DataParallel) -> list[tuple[str, ...]]:
    return [unit.names for unit in strategy.units(replica_of(Zoo()))]


def test_small_tensors_of_one_dtype_are_fused() -> None:
    assert names(DataParallel(Quantize(8))) == [
        ("small.weight", "small.bias", "large.bias", "norm.weight", "norm.bias"),
        ("large.weight",),
        ("half.weight", "half.bias"),
    ]


def test_a_tensor_of_fuse_below_elements_is_not_fused() -> None:
    assert ("large.weight",) in names(DataParallel(Average(), fuse_below=7200))
    assert ("large.weight",) not in names(DataParallel(Average(), fuse_below=7201))


def test_fuse_below_0_fuses_nothing() -> None:
    assert all(len(unit) == 1 for unit in names(DataParallel(Average(), fuse_below=0)))


def test_matrices_are_not_fused_if_the_reducer_needs_their_shape() -> None:
    units = DataParallel(ErrorFeedback(PowerSGD(1))).units(replica_of(Zoo()))
    alone = {unit.names for unit in units if unit.reducer.needs_shape}
    assert alone == {("small.weight",), ("large.weight",)}  # for 3 x 2, factors would not be smaller


def test_small_matrices_are_not_fused_if_the_reducer_needs_their_shape() -> None:
    model = nn.Sequential(nn.Linear(12, 20, bias=False), nn.Linear(20, 12, bias=False))
    units = DataParallel(PowerSGD(1)).units(replica_of(model))
    assert [unit.names for unit in units] == [("0.weight",), ("1.weight",)]


def test_only_parameters_with_the_same_reducer_are_fused() -> None:
    strategy = DataParallel(Choose(When(Quantize(4), kinds=("norm",))))
    assert ("norm.weight", "norm.bias") in names(strategy)


def test_every_unit_has_a_different_seed() -> None:
    seeds = [unit.seed for unit in DataParallel(Average(), fuse_below=0).units(replica_of(Zoo()))]
    assert len(set(seeds)) == len(seeds) == 8


def test_units_do_not_depend_on_the_rank() -> None:
    strategy = DataParallel(ErrorFeedback(PowerSGD(1)))
    assert strategy.units(replica_of(Zoo(), rank=0, size=2)) == strategy.units(replica_of(Zoo(), rank=1, size=2))


def test_the_state_is_keyed_by_parameter_names() -> None:
    strategy = DataParallel(ErrorFeedback(Quantize(4)))
    replica = replica_of(Zoo())
    assert set(strategy.init(replica)) == {unit.key for unit in strategy.units(replica)}
    assert "large.weight" in strategy.init(replica)


def test_fusing_does_not_change_an_uncompressed_mean() -> None:
    assert same_bits(reduced(DataParallel(Average())), reduced(DataParallel(Average(), fuse_below=0)))


@pytest.mark.parametrize("fuse_below", [0, 4096])
def test_the_gradient_is_replaced_in_place_and_keeps_its_dtype(fuse_below: int) -> None:
    strategy = DataParallel(ErrorFeedback(Quantize(8)), fuse_below=fuse_below)
    replica = replica_of(Zoo())
    for p in replica.parameters.values():
        p.grad = torch.ones_like(p)
    kept = {name: p.grad for name, p in replica.parameters.items()}
    Simulated(1).run([strategy.before_update(replica, strategy.init(replica))])
    for name, p in replica.parameters.items():
        assert p.grad is kept[name]
        assert p.grad is not None
        assert p.grad.dtype == p.dtype


def test_each_parameter_gets_its_mean_from_a_fused_message() -> None:
    ranks = 3
    for name, gradient in reduced(DataParallel(Average()), ranks).items():
        i = list(replica_of(Zoo()).parameters).index(name)
        terms = [random(*gradient.shape, seed=10 * i + rank, dtype=gradient.dtype).double() for rank in range(ranks)]
        torch.testing.assert_close(gradient, torch.stack(terms).mean(0).to(gradient.dtype), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, torch.finfo(torch.float32).max])
@pytest.mark.parametrize(
    "reducer",
    [
        Average(),
        Average(Cast("float16")),
        Average(Sign()),
        ErrorFeedback(Server(Sign(), Cast("float16"))),
        ErrorFeedback(Server(Identity(), Cast("float16"), rank=1)),
        ErrorFeedback(Sharded(Sign(), Cast("float16"))),
        ErrorFeedback(Sharded(Quantize(8), Quantize(8))),
        ErrorFeedback(PowerSGD(1)),
    ],
    ids=repr,
)
def test_all_ranks_agree_on_whether_a_message_was_dropped(reducer: Reducer, value: float) -> None:
    # Otherwise, replicas would diverge without an error.
    strategy, ranks = DataParallel(reducer), 3
    replicas = [replica_of(nn.Linear(40, 24, bias=False), rank=rank, size=ranks) for rank in range(ranks)]
    for replica in replicas:
        p = replica.parameters["weight"]
        p.grad = random(*p.shape, seed=replica.rank)
        p.grad[:3] = value if replica.rank == 2 else 1.0
    results = Simulated(ranks).run([strategy.before_update(r, strategy.init(r)) for r in replicas])
    assert len({bool(result.nonfinite) for result in results}) == 1
    assert all(same_bits(r.parameters["weight"].grad, replicas[0].parameters["weight"].grad) for r in replicas)


@pytest.mark.parametrize("wrong", [-1, 2.5, "many"])
def test_an_invalid_fuse_below_is_an_error(wrong: object) -> None:
    with pytest.raises(ValueError, match=str(wrong)):
        DataParallel(Average(), fuse_below=wrong)  # type: ignore[arg-type]


def test_a_reducer_of_another_type_is_an_error() -> None:
    with pytest.raises(ValueError, match="codec or a reducer"):
        DataParallel("fp16")  # type: ignore[arg-type]
