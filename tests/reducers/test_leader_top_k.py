"""All follow a leader to the same places, and every step has another leader."""

import math

import pytest
import torch

from thinwire import (
    LGC,
    After,
    Average,
    Codec,
    Difference,
    Feedback,
    GroupsOf,
    Identity,
    Led,
    Momentum,
    Nested,
    Parameter,
    PowerSGD,
    Quantize,
    Reducer,
    Server,
    Sharded,
    Sign,
    TopK,
    replica_of,
)
from thinwire.core.lazy import outline

from ..helpers import by_rank, same_bits, started, step

RANKS, SHAPE = 3, (20, 30)


def test_the_leaders_largest_are_averaged_and_nothing_else() -> None:
    suited, states = started(Led(0.05), torch.zeros(SHAPE), RANKS)
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
    suited, states = started(Led(0.05, hold=3), torch.zeros(SHAPE), RANKS)
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
    suited, states = started(Feedback(Led(0.05, values=values)), torch.zeros(SHAPE), RANKS)
    given, told = torch.zeros(SHAPE), torch.zeros(SHAPE)
    for i in range(30):
        xs = by_rank(RANKS, *SHAPE, seed=i)
        held = step(suited, xs, states)
        states = held.states
        given += torch.stack(xs).mean(0)
        told += held.reduced
    unsaid = torch.stack([suited.unsaid(state).dense() for state in states]).mean(0)  # type: ignore[union-attr]
    torch.testing.assert_close(told + unsaid, given, rtol=0, atol=1e-4)


def test_a_layer_without_a_gradient_at_its_leader_is_still_said() -> None:
    xs = by_rank(2, 50)
    xs[0].zero_()
    suited, states = started(Led(0.2, ends=True), torch.zeros(5, 10), 2)
    held = step(suited, [x.view(5, 10) for x in xs], states)
    torch.testing.assert_close(held.reduced.flatten()[:10], xs[1][:10] / 2)


def test_nan_is_heard_wherever_it_is() -> None:
    suited, states = started(Led(0.01, least=1), torch.zeros(SHAPE), RANKS)
    for rank in range(RANKS):
        xs = by_rank(RANKS, *SHAPE)
        where = int(xs[0].abs().argmin())  # where the leader does not look
        xs[rank].view(-1)[where] = math.nan
        assert all(reply.reduced.isnan().any() for reply in step(suited, xs, states).replies)


def test_first_and_last_are_spared_unless_they_are_led_too() -> None:
    def of(shape: tuple[int, ...], end: str, led: Led) -> Reducer:
        return led.suited(Parameter("x", "dense", outline(torch.empty(shape)), (0, 1), end))

    assert of((8,), "", Led(ends=True)) == Average()
    assert of((8, 8), "first", Led()) == Average()
    assert of((80, 80), "last", Led(0.01)) == Average(TopK(0.01))
    assert of((8, 8), "last", Led(0.01)) == Average(TopK(10 / 64)), "as many of them at least"
    for led in (of((8, 8), "", Led()), of((8, 8), "first", Led(ends=True))):
        assert isinstance(led, Led)
        assert led.ranks == (0, 1)
    assert of((80, 80), "last", Feedback(Led(0.01))) == Feedback(Average(TopK(0.01)))  # type: ignore[arg-type]
    assert of((8, 8), "first", Momentum(by=Led())) == Average()  # type: ignore[arg-type]


def test_by_way_of_a_server_it_is_the_same_to_the_bit() -> None:
    direct, states = started(Led(0.05), torch.zeros(SHAPE), RANKS)
    served, there = started(Server(Led(0.05), Identity(), at=1), torch.zeros(SHAPE), RANKS)
    for i in range(4):
        xs = by_rank(RANKS, *SHAPE, seed=i)
        here, away = step(direct, xs, states), step(served, xs, there)
        states, there = here.states, away.states
        torch.testing.assert_close(away.reduced, here.reduced)
        assert all(same_bits(a.sent, b.sent) for a, b in zip(here.replies, away.replies, strict=True))
        assert all(set(meter.sent) <= {1} for rank, meter in enumerate(away.meters) if rank != 1)


def test_momentum_says_by_it_and_clears_what_was_said() -> None:
    suited, states = started(Momentum(by=Led(0.05), outside=0.0), torch.zeros(SHAPE), 2)
    xs = by_rank(2, *SHAPE)
    held = step(suited, xs, states)
    for x, reply, state in zip(xs, held.replies, held.states, strict=True):
        said = reply.sent != 0
        assert int(said.sum()) == 30
        assert not state.velocity[said].any()
        torch.testing.assert_close(state.velocity[~said], x[~said])
        torch.testing.assert_close(state.unsent + reply.sent, x)


def test_settings_that_make_no_sense_are_refused() -> None:
    for wrong, told in (
        (lambda: Led(hold=0), "1 step or more"),
        (lambda: Led(ends="no"), "True or False"),  # type: ignore[arg-type]
        (lambda: Led(order="size"), "'size'"),
        (lambda: Led(values=Sharded(Sign(), Sign())), "not Sharded"),  # type: ignore[arg-type]
        (lambda: Momentum(0.01, by=Led()), "ratio=0.01 makes no difference"),
        (lambda: Momentum(ramp_steps=5, by=Led()), "ramp_steps=5 makes no difference"),
        (lambda: Momentum(by=Feedback(Led())), "remembers what Momentum around it does"),
    ):
        with pytest.raises(ValueError, match=told):
            wrong()


def test_a_leader_that_has_next_to_nothing_leaves_the_rest_for_later() -> None:
    xs = [torch.full((5, 10), 1e-38), torch.full((5, 10), 1e2)]
    suited, states = started(Feedback(Led(1.0)), xs[0], 2)
    held = step(suited, xs, states)
    assert held.reduced.isfinite().all()
    torch.testing.assert_close(held.replies[1].sent + suited.unsaid(held.states[1]).dense(), xs[1])  # type: ignore[union-attr]
    torch.testing.assert_close(step(suited, xs, held.states).reduced, torch.full((5, 10), 1e2))


def test_values_are_sorted_for_what_learns_and_for_nothing_else() -> None:
    assert Led(values=LGC()).places.order == "value"
    assert Led(values=LGC(), order="magnitude").places.order == "magnitude"
    assert Led(values=Quantize(4)).places.order == "index"


def test_what_needs_a_shape_before_it_is_not_joined() -> None:
    assert After(2, Led()).joined((4, 4)) == After(2, Led(sizes=(4, 4)))
    assert After(2, Led(), first=PowerSGD(2)).joined((4, 4)) is None
    assert Difference(Led()).joined((4, 4)) == Difference(Led(sizes=(4, 4)))


def test_parts_of_a_model_have_its_ends() -> None:
    net = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(7)])
    strategy = Nested(Average(), Led(0.1), GroupsOf(3))
    kinds: list[str] = []
    for rank in range(6):
        units = strategy.units(replica_of(net, rank=rank, size=6))
        kinds += [name for unit in units for name in unit.names if isinstance(unit.reducer, Led)]
    assert sorted(kinds) == sorted(2 * [f"{i}.weight" for i in range(1, 6)]), "in both groups, all but the two ends"
