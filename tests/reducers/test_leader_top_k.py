"""Leader top-k: every rank sends its values at the indices of a leader that changes every step."""

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


def test_only_the_leaders_largest_entries_are_averaged() -> None:
    specialized, states = started(LeaderTopK(0.05), torch.zeros(SHAPE), RANKS)
    for i in range(2 * RANKS):
        xs = by_rank(RANKS, *SHAPE, seed=i)
        result = step(specialized, xs, states)
        states, leader = result.states, i % RANKS
        indices = xs[leader].abs().flatten().topk(30).indices
        expected = torch.zeros(600)
        expected[indices] = torch.stack([x.flatten()[indices] for x in xs]).mean(0)
        torch.testing.assert_close(result.reduced.flatten(), expected)
        for x, reply in zip(xs, result.replies, strict=True):
            sent = torch.zeros(600)
            sent[indices] = x.flatten()[indices]
            torch.testing.assert_close(reply.sent.flatten(), sent)


def test_indices_that_are_held_are_sent_once() -> None:
    specialized, states = started(LeaderTopK(0.05, hold=3), torch.zeros(SHAPE), RANKS)
    indices, payloads = [], []
    for i in range(6):
        result = step(specialized, by_rank(RANKS, *SHAPE, seed=i), states)
        states = result.states
        indices.append(result.reduced.flatten().nonzero().squeeze(1).tolist())
        payloads.append([meter.payload_bytes for meter in result.meters])
    assert indices[0] == indices[1] == indices[2] != indices[3] == indices[4] == indices[5]
    values, scale, index_bytes = 4 * 30, 4, 24  # the last: 30 of 600, at 6.4 bits each
    assert payloads[0] == [values + scale + index_bytes, values, values]
    assert payloads[1] == payloads[2] == [values + scale, values, values]
    assert payloads[3] == [values, values + scale + index_bytes, values]


@pytest.mark.parametrize("values", [Identity(), Quantize(4)], ids=repr)
def test_error_feedback_keeps_the_rounding_error_of_values(values: Codec) -> None:
    specialized, states = started(ErrorFeedback(LeaderTopK(0.05, values=values)), torch.zeros(SHAPE), RANKS)
    given, reduced = torch.zeros(SHAPE), torch.zeros(SHAPE)
    for i in range(30):
        xs = by_rank(RANKS, *SHAPE, seed=i)
        result = step(specialized, xs, states)
        states = result.states
        given += torch.stack(xs).mean(0)
        reduced += result.reduced
    residual = torch.stack([specialized.residual(state).dense() for state in states]).mean(0)  # type: ignore[union-attr]
    torch.testing.assert_close(reduced + residual, given, rtol=0, atol=1e-4)


def test_entries_are_sent_even_if_the_leaders_gradient_is_zero() -> None:
    xs = by_rank(2, 50)
    xs[0].zero_()
    specialized, states = started(LeaderTopK(0.2, ends=True), torch.zeros(5, 10), 2)
    result = step(specialized, [x.view(5, 10) for x in xs], states)
    torch.testing.assert_close(result.reduced.flatten()[:10], xs[1][:10] / 2)


def test_nan_on_any_rank_reaches_all() -> None:
    specialized, states = started(LeaderTopK(0.01, least=1), torch.zeros(SHAPE), RANKS)
    for rank in range(RANKS):
        xs = by_rank(RANKS, *SHAPE)
        where = int(xs[0].abs().argmin())  # not among the leader's indices
        xs[rank].view(-1)[where] = math.nan
        assert all(reply.reduced.isnan().any() for reply in step(specialized, xs, states).replies)


def test_the_first_and_last_layers_are_sent_differently_unless_ends_is_set() -> None:
    def of(shape: tuple[int, ...], end: str, reducer: LeaderTopK) -> Reducer:
        return reducer.specialize(Parameter("x", "dense", outline(torch.empty(shape)), (0, 1), end))

    assert of((8,), "", LeaderTopK(ends=True)) == Average()
    assert of((8, 8), "first", LeaderTopK()) == Average()
    assert of((80, 80), "last", LeaderTopK(0.01)) == Average(TopK(0.01))
    assert of((8, 8), "last", LeaderTopK(0.01)) == Average(TopK(10 / 64)), "at least 10 entries"
    for reducer in (of((8, 8), "", LeaderTopK()), of((8, 8), "first", LeaderTopK(ends=True))):
        assert isinstance(reducer, LeaderTopK)
        assert reducer.ranks == (0, 1)
    assert of((80, 80), "last", ErrorFeedback(LeaderTopK(0.01))) == ErrorFeedback(Average(TopK(0.01)))  # type: ignore[arg-type]
    assert of((8, 8), "first", DGC(by=LeaderTopK())) == Average()  # type: ignore[arg-type]


def test_through_a_server_the_results_are_the_same() -> None:
    direct, states = started(LeaderTopK(0.05), torch.zeros(SHAPE), RANKS)
    served, served_states = started(Server(LeaderTopK(0.05), Identity(), rank=1), torch.zeros(SHAPE), RANKS)
    for i in range(4):
        xs = by_rank(RANKS, *SHAPE, seed=i)
        expected, actual = step(direct, xs, states), step(served, xs, served_states)
        states, served_states = expected.states, actual.states
        torch.testing.assert_close(actual.reduced, expected.reduced)
        assert all(same_bits(a.sent, b.sent) for a, b in zip(expected.replies, actual.replies, strict=True))
        assert all(set(meter.sent) <= {1} for rank, meter in enumerate(actual.meters) if rank != 1)


def test_dgc_sends_at_the_leaders_indices_and_clears_what_was_sent() -> None:
    specialized, states = started(DGC(by=LeaderTopK(0.05), outside=0.0), torch.zeros(SHAPE), 2)
    xs = by_rank(2, *SHAPE)
    result = step(specialized, xs, states)
    for x, reply, state in zip(xs, result.replies, result.states, strict=True):
        sent = reply.sent != 0
        assert int(sent.sum()) == 30
        assert not state.velocity[sent].any()
        torch.testing.assert_close(state.velocity[~sent], x[~sent])
        torch.testing.assert_close(state.unsent + reply.sent, x)


def test_an_invalid_setting_is_an_error() -> None:
    for make, message in (
        (lambda: LeaderTopK(hold=0), "1 step or more"),
        (lambda: LeaderTopK(ends="no"), "True or False"),  # type: ignore[arg-type]
        (lambda: LeaderTopK(order="size"), "'size'"),
        (lambda: LeaderTopK(values=Sharded(Sign(), Sign())), "not Sharded"),  # type: ignore[arg-type]
        (lambda: DGC(0.01, by=LeaderTopK()), "ratio=0.01 has no effect"),
        (lambda: DGC(ramp_steps=5, by=LeaderTopK()), "ramp_steps=5 has no effect"),
        (lambda: DGC(by=ErrorFeedback(LeaderTopK())), "keeps a residual, as DGC around it does"),
    ):
        with pytest.raises(ValueError, match=message):
            make()


def test_values_far_above_the_leaders_scale_are_clamped_into_the_residual() -> None:
    xs = [torch.full((5, 10), 1e-38), torch.full((5, 10), 1e2)]
    specialized, states = started(ErrorFeedback(LeaderTopK(1.0)), xs[0], 2)
    result = step(specialized, xs, states)
    assert result.reduced.isfinite().all()
    torch.testing.assert_close(result.replies[1].sent + specialized.residual(result.states[1]).dense(), xs[1])  # type: ignore[union-attr]
    torch.testing.assert_close(step(specialized, xs, result.states).reduced, torch.full((5, 10), 1e2))


def test_values_are_sorted_for_learned_codes_only() -> None:
    assert LeaderTopK(values=LGC()).positions.order == "value"
    assert LeaderTopK(values=LGC(), order="magnitude").positions.order == "magnitude"
    assert LeaderTopK(values=Quantize(4)).positions.order == "index"


def test_fusing_needs_all_reducers_to_fuse() -> None:
    assert WarmUp(2, LeaderTopK()).fuse((4, 4)) == WarmUp(2, LeaderTopK(sizes=(4, 4)))
    assert WarmUp(2, LeaderTopK(), first=PowerSGD(2)).fuse((4, 4)) is None
    assert Difference(LeaderTopK()).fuse((4, 4)) == Difference(LeaderTopK(sizes=(4, 4)))


def test_within_groups_the_first_and_last_layers_are_those_of_the_model() -> None:
    net = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(7)])
    strategy = Hierarchical(Average(), LeaderTopK(0.1), GroupsOf(3))
    kinds: list[str] = []
    for rank in range(6):
        units = strategy.units(replica_of(net, rank=rank, size=6))
        kinds += [name for unit in units for name in unit.names if isinstance(unit.reducer, LeaderTopK)]
    assert sorted(kinds) == sorted(2 * [f"{i}.weight" for i in range(1, 6)]), (
        "in both groups, all but the first and the last layer"
    )
