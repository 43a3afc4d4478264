"""All follow a leader to the same places, and every step has another leader."""

import math

import pytest
import torch

from thinwire import (
    DGC,
    LGC,
    Average,
    Difference,
    ErrorFeedback,
    GroupsOf,
    Hierarchical,
    Identity,
    LeaderTopK,
    PowerSGD,
    Quantize,
    Server,
    Sharded,
    Sign,
    TopK,
    WarmUp,
)
from thinwire.core.lazy import outline
from thinwire.extend import Codec, Parameter, Reducer
from thinwire.simulate import replica_of

from ..helpers import by_rank, same_bits, started, step

RANKS, SHAPE = 3, (20, 30)


def test_the_leaders_largest_are_averaged_and_nothing_else() -> None:
    suited, states = started(LeaderTopK(0.05), torch.zeros(SHAPE), RANKS)
    for i in range(2 * RANKS):
        xs = by_rank(RANKS, *SHAPE, seed=i)
        held = step(suited, xs, states)
        states, leader = held.states, i % RANKS
        places = xs[leader].abs().flatten().topk(30).indices
        expected = torch.zeros(600)
        expected[places] = torch.stack([x.flatten()[places] for x in xs]).mean(0)
        torch.testing.assert_close(held.reduced.flatten(), expected)
        for x, reply in zip(xs, held.replies, strict=True):
            sent = torch.zeros(600)
            sent[places] = x.flatten()[places]
            torch.testing.assert_close(reply.sent.flatten(), sent)


def test_places_that_are_held_are_told_once() -> None:
    suited, states = started(LeaderTopK(0.05, hold=3), torch.zeros(SHAPE), RANKS)
    where, said = [], []
    for i in range(6):
        held = step(suited, by_rank(RANKS, *SHAPE, seed=i), states)
        states = held.states
        where.append(held.reduced.flatten().nonzero().squeeze(1).tolist())
        said.append([meter.payload_bytes for meter in held.meters])
    assert where[0] == where[1] == where[2] != where[3] == where[4] == where[5]
    values, scale, places = 4 * 30, 4, 24  # the last: 30 among 600, at 6.4 bits
    assert said[0] == [values + scale + places, values, values]
    assert said[1] == said[2] == [values + scale, values, values]
    assert said[3] == [values, values + scale + places, values]


@pytest.mark.parametrize("values", [Identity(), Quantize(4)], ids=repr)
def test_what_rounding_loses_is_remembered_around_it(values: Codec) -> None:
    suited, states = started(ErrorFeedback(LeaderTopK(0.05, values=values)), torch.zeros(SHAPE), RANKS)
    given, told = torch.zeros(SHAPE), torch.zeros(SHAPE)
    for i in range(30):
        xs = by_rank(RANKS, *SHAPE, seed=i)
        held = step(suited, xs, states)
        states = held.states
        given += torch.stack(xs).mean(0)
        told += held.reduced
    unsaid = torch.stack([suited.residual(state).dense() for state in states]).mean(0)  # type: ignore[union-attr]
    torch.testing.assert_close(told + unsaid, given, rtol=0, atol=1e-4)


def test_a_layer_without_a_gradient_at_its_leader_is_still_said() -> None:
    xs = by_rank(2, 50)
    xs[0].zero_()
    suited, states = started(LeaderTopK(0.2, ends=True), torch.zeros(5, 10), 2)
    held = step(suited, [x.view(5, 10) for x in xs], states)
    torch.testing.assert_close(held.reduced.flatten()[:10], xs[1][:10] / 2)


def test_nan_is_heard_wherever_it_is() -> None:
    suited, states = started(LeaderTopK(0.01, least=1), torch.zeros(SHAPE), RANKS)
    for rank in range(RANKS):
        xs = by_rank(RANKS, *SHAPE)
        where = int(xs[0].abs().argmin())  # where the leader does not look
        xs[rank].view(-1)[where] = math.nan
        assert all(reply.reduced.isnan().any() for reply in step(suited, xs, states).replies)


def test_first_and_last_are_spared_unless_they_are_led_too() -> None:
    def of(shape: tuple[int, ...], end: str, led: LeaderTopK) -> Reducer:
        return led.specialize(Parameter("x", "dense", outline(torch.empty(shape)), (0, 1), end))

    assert of((8,), "", LeaderTopK(ends=True)) == Average()
    assert of((8, 8), "first", LeaderTopK()) == Average()
    assert of((80, 80), "last", LeaderTopK(0.01)) == Average(TopK(0.01))
    assert of((8, 8), "last", LeaderTopK(0.01)) == Average(TopK(10 / 64)), "as many of them at least"
    for led in (of((8, 8), "", LeaderTopK()), of((8, 8), "first", LeaderTopK(ends=True))):
        assert isinstance(led, LeaderTopK)
        assert led.ranks == (0, 1)
    assert of((80, 80), "last", ErrorFeedback(LeaderTopK(0.01))) == ErrorFeedback(Average(TopK(0.01)))  # type: ignore[arg-type]
    assert of((8, 8), "first", DGC(by=LeaderTopK())) == Average()  # type: ignore[arg-type]


def test_by_way_of_a_server_it_is_the_same_to_the_bit() -> None:
    direct, states = started(LeaderTopK(0.05), torch.zeros(SHAPE), RANKS)
    served, there = started(Server(LeaderTopK(0.05), Identity(), rank=1), torch.zeros(SHAPE), RANKS)
    for i in range(4):
        xs = by_rank(RANKS, *SHAPE, seed=i)
        here, away = step(direct, xs, states), step(served, xs, there)
        states, there = here.states, away.states
        torch.testing.assert_close(away.reduced, here.reduced)
        assert all(same_bits(a.sent, b.sent) for a, b in zip(here.replies, away.replies, strict=True))
        assert all(set(meter.sent) <= {1} for rank, meter in enumerate(away.meters) if rank != 1)


def test_momentum_says_by_it_and_clears_what_was_said() -> None:
    suited, states = started(DGC(by=LeaderTopK(0.05), outside=0.0), torch.zeros(SHAPE), 2)
    xs = by_rank(2, *SHAPE)
    held = step(suited, xs, states)
    for x, reply, state in zip(xs, held.replies, held.states, strict=True):
        said = reply.sent != 0
        assert int(said.sum()) == 30
        assert not state.velocity[said].any()
        torch.testing.assert_close(state.velocity[~said], x[~said])
        torch.testing.assert_close(state.unsent + reply.sent, x)


def test_an_invalid_setting_is_an_error() -> None:
    for wrong, told in (
        (lambda: LeaderTopK(hold=0), "1 step or more"),
        (lambda: LeaderTopK(ends="no"), "True or False"),  # type: ignore[arg-type]
        (lambda: LeaderTopK(order="size"), "'size'"),
        (lambda: LeaderTopK(values=Sharded(Sign(), Sign())), "not Sharded"),  # type: ignore[arg-type]
        (lambda: DGC(0.01, by=LeaderTopK()), "ratio=0.01 has no effect"),
        (lambda: DGC(ramp_steps=5, by=LeaderTopK()), "ramp_steps=5 has no effect"),
        (lambda: DGC(by=ErrorFeedback(LeaderTopK())), "keeps a residual, as DGC around it does"),
    ):
        with pytest.raises(ValueError, match=told):
            wrong()


def test_values_far_above_the_leaders_scale_are_clamped_into_the_residual() -> None:
    xs = [torch.full((5, 10), 1e-38), torch.full((5, 10), 1e2)]
    suited, states = started(ErrorFeedback(LeaderTopK(1.0)), xs[0], 2)
    held = step(suited, xs, states)
    assert held.reduced.isfinite().all()
    torch.testing.assert_close(held.replies[1].sent + suited.residual(held.states[1]).dense(), xs[1])  # type: ignore[union-attr]
    torch.testing.assert_close(step(suited, xs, held.states).reduced, torch.full((5, 10), 1e2))


def test_values_are_sorted_for_learned_codes_only() -> None:
    assert LeaderTopK(values=LGC()).positions.order == "value"
    assert LeaderTopK(values=LGC(), order="magnitude").positions.order == "magnitude"
    assert LeaderTopK(values=Quantize(4)).positions.order == "index"


def test_what_needs_a_shape_before_it_is_not_joined() -> None:
    assert WarmUp(2, LeaderTopK()).fuse((4, 4)) == WarmUp(2, LeaderTopK(sizes=(4, 4)))
    assert WarmUp(2, LeaderTopK(), first=PowerSGD(2)).fuse((4, 4)) is None
    assert Difference(LeaderTopK()).fuse((4, 4)) == Difference(LeaderTopK(sizes=(4, 4)))


def test_parts_of_a_model_have_its_ends() -> None:
    net = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(7)])
    strategy = Hierarchical(Average(), LeaderTopK(0.1), GroupsOf(3))
    kinds: list[str] = []
    for rank in range(6):
        units = strategy.units(replica_of(net, rank=rank, size=6))
        kinds += [name for unit in units for name in unit.names if isinstance(unit.reducer, LeaderTopK)]
    assert sorted(kinds) == sorted(2 * [f"{i}.weight" for i in range(1, 6)]), "in both groups, all but the two ends"
