"""The collectives: results, gradients, byte counts and errors, the same in threads and in processes."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import thinwire
from tests.attach.processes import run
from thinwire.simulate import InProcessCluster

RANKS = 3


def all_collectives() -> dict[str, Any]:
    context = thinwire.Replicator().context
    r = context.rank
    nest = {"x": torch.arange(4.0) + r, "n": r + 1, "f": (0.5 * r, torch.tensor([r, 10 - r]))}
    half = torch.tensor([1.0, 1 / 3], dtype=torch.float16) * (r + 1)
    found = {
        "sum": context.all_sum(nest),
        "mean": context.all_mean({"x": nest["x"], "n": r + 1}),
        "min": context.all_min(nest),
        "max": context.all_max(nest),
        "gather": context.all_gather({"x": nest["x"], "n": r}),
        "broadcast": context.broadcast({"x": torch.full((2,), float(r)), "flag": r == 1}, source=1),
        "half": context.all_sum(half),
        "bool": context.all_sum(torch.tensor([True, r > 0])),
        "empty": context.all_sum([torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64)]),
        "weighted": context.weighted_mean({"loss": float(r), "x": torch.tensor(1.0 * r)}, weight=r),
        "notes": context.gather_notes({"rank": r, "text": "é"}),
        "mapped": context.map_gather(lambda i: {"square": i * i, "x": torch.tensor([1.0 * i])}, range(7)),
        "few": context.map_gather(lambda i: i + 1, [10]),
        "none": context.map_gather(lambda i: i, []),
        "reduced": context.map_reduce(lambda i: {"n": i, "x": torch.tensor(float(i))}, range(1, 8)),
        "reduced mean": context.map_reduce(lambda i: 1.0 * i, [1, 2]),
        "largest": context.map_reduce(lambda i: i % 5, range(9), "max"),
        "smallest": context.map_reduce(lambda i: torch.tensor([i, -i]), [3, 4], "min"),
    }
    context.barrier()
    return {name: plain(value) for name, value in found.items()}


def plain(nest: Any) -> Any:
    if isinstance(nest, dict):
        return {key: plain(value) for key, value in nest.items()}
    if isinstance(nest, list | tuple):
        return [plain(value) for value in nest]
    return (str(nest.dtype), nest.tolist()) if isinstance(nest, torch.Tensor) else nest


def test_every_collective_gives_the_expected_value():
    first, *others = InProcessCluster(RANKS).run(all_collectives)
    assert all(other == first for other in others)
    f32, i64 = "torch.float32", "torch.int64"
    assert first["sum"] == {"x": (f32, [3.0, 6.0, 9.0, 12.0]), "n": 6, "f": [1.5, (i64, [3, 27])]}
    assert first["mean"] == {"x": (f32, [1.0, 2.0, 3.0, 4.0]), "n": 2.0}
    assert first["min"] == {"x": (f32, [0.0, 1.0, 2.0, 3.0]), "n": 1, "f": [0.0, (i64, [0, 8])]}
    assert first["max"] == {"x": (f32, [2.0, 3.0, 4.0, 5.0]), "n": 3, "f": [1.0, (i64, [2, 10])]}
    assert first["gather"]["x"] == (f32, [[0.0, 1, 2, 3], [1.0, 2, 3, 4], [2.0, 3, 4, 5]])
    assert first["gather"]["n"] == (i64, [0, 1, 2])
    assert first["broadcast"] == {"x": (f32, [1.0, 1.0]), "flag": True}
    assert first["half"] == ("torch.float16", torch.tensor([6.0, 2.0], dtype=torch.float16).tolist())
    assert first["bool"] == (i64, [3, 2])
    assert first["empty"] == [(f32, []), (i64, [])]
    assert first["weighted"] == {"loss": pytest.approx(5 / 3), "x": (f32, pytest.approx(5 / 3))}
    assert first["notes"] == [{"rank": r, "text": "é"} for r in range(RANKS)]
    assert first["mapped"] == [{"square": i * i, "x": (f32, [1.0 * i])} for i in range(7)]
    assert (first["few"], first["none"]) == ([11], [])
    assert first["reduced"] == {"n": 28, "x": (f32, 28.0)}
    assert first["reduced mean"] == 3.0
    assert (first["largest"], first["smallest"]) == (4, (i64, [3, -4]))


def test_processes_give_the_same_values_as_threads():
    assert run(all_collectives, ranks=RANKS) == InProcessCluster(RANKS).run(all_collectives)


def test_collectives_of_a_single_replica():
    context = thinwire.Replicator().context
    assert (context.rank, context.num_replicas) == (0, 1)
    assert context.all_sum({"x": 2}) == {"x": 2}
    assert context.all_gather(torch.ones(2)).tolist() == [[1.0, 1.0]]
    assert context.map_reduce(lambda i: i, [1, 2, 3], "mean") == 2.0


def gradients_of_collectives() -> dict[str, list[float]]:
    """This replica's gradients of the sum over all replicas of their weighted results."""
    context = thinwire.Replicator().context
    weight = float(context.rank + 1)

    def gradient(act: Any) -> list[float]:
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        (weight * act(x)).sum().backward()
        return x.grad.tolist()

    return {
        "sum": gradient(context.all_sum),
        "mean": gradient(context.all_mean),
        "gather": gradient(lambda x: context.all_gather(x)[(context.rank + 1) % RANKS]),
        "broadcast": gradient(lambda x: context.broadcast(x, source=1)),
        "nest": gradient(lambda x: context.all_sum({"a": x, "n": 1})["a"]),
    }


def test_gradients_flow_to_all_replicas():
    total = 1.0 + 2.0 + 3.0
    found = InProcessCluster(RANKS).run(gradients_of_collectives)
    for rank, gradients in enumerate(found):
        assert gradients["sum"] == gradients["nest"] == [total] * 2
        assert gradients["mean"] == pytest.approx([total / RANKS] * 2)
        assert gradients["gather"] == [float((rank - 1) % RANKS + 1)] * 2, (
            "from the replica that selected this one's row"
        )
        assert gradients["broadcast"] == [total if rank == 1 else 0.0] * 2
    assert run(gradients_of_collectives, ranks=RANKS) == found


def test_no_gradient_flows_under_no_grad_or_through_all_max():
    context = thinwire.Replicator().context
    x = torch.ones(1, requires_grad=True)
    with torch.no_grad():
        assert not context.all_sum(x).requires_grad
    assert not context.all_max(x).requires_grad


@pytest.mark.parametrize(
    ("act", "problem"),
    [
        (lambda c: c.broadcast(1, source=1), "no replica 1 to broadcast from, only 0 to 0"),
        (lambda c: c.map_reduce(lambda i: i, [1], "median"), "not 'median'"),
        (lambda c: c.map_reduce(lambda i: i, []), "needs at least one item"),
        (lambda c: c.map_gather(lambda i: torch.ones(i), [1, 2]), r"item 0 it is float32\[1\], for item 1"),
    ],
)
def test_invalid_arguments_are_an_error(act, problem):
    with pytest.raises(ValueError, match=problem):
        act(thinwire.Replicator().context)


def test_exchanging_a_string_is_an_error():
    with pytest.raises(TypeError, match="not str"):
        thinwire.Replicator().context.all_sum({"name": "text"})


@pytest.mark.parametrize(
    ("act", "nbytes"),
    [
        (lambda c: c.all_sum(torch.zeros(1000)), 2 * 3 * 1000),  # 3/4 of 4,000 bytes, reduce-scatter and all-gather
        (lambda c: c.all_gather(torch.zeros(10)), 3 * 40),
        (lambda c: c.all_max(torch.zeros(10)), 3 * 40),
        (lambda c: c.broadcast(torch.zeros(10)), 3 * 40),  # at its source
        (lambda c: c.map_gather(lambda i: i, range(8)), 3 * 2 * 8),
        (lambda c: c.gather_notes("four"), 3 * (8 + 6)),
    ],
)
def test_the_meter_counts_all_bytes_on_the_link(act, nbytes):
    assert counted(act, checked=False) == nbytes
    assert counted(act, checked=True) == nbytes + 3 * 128, "plus the comparison of the call"


def test_a_checked_barrier_sends_only_the_comparison():
    assert counted(lambda c: c.barrier(), checked=False) == 3 * 1
    assert counted(lambda c: c.barrier(), checked=True) == 3 * 128


def file_exists_after_barrier(mark: Path) -> list[bool]:
    """Whether a file that the last replica writes late, before a barrier, exists after it; unchecked and checked."""
    seen = []
    for checked in (False, True):
        context = thinwire.Replicator(checked=checked).context
        context.barrier()
        mine = mark.with_suffix(f".{checked}")
        if context.rank == context.num_replicas - 1:
            time.sleep(0.2)
            mine.touch()
        context.barrier()
        seen.append(mine.exists())
    return seen


def test_a_barrier_waits_for_all_replicas(tmp_path):
    assert run(file_exists_after_barrier, tmp_path / "late", ranks=RANKS) == [[True, True]] * RANKS


def values_of_all_types() -> dict[str, Any]:
    context = thinwire.Replicator().context
    r = context.rank
    nan_at_weight_0 = torch.tensor([float("nan"), 1.0]) if r == 0 else torch.tensor([2.0, 4.0 * r])
    return {
        "complex mean": context.all_mean(torch.tensor([1 + 2j, 4j]) * (r + 1)),
        "small integers": context.all_sum(torch.tensor([200, 100 + r], dtype=torch.uint8)),
        "their minimum": context.all_min(torch.tensor([200, 100 + r], dtype=torch.uint8)),
        "mean without replicas of weight 0": context.weighted_mean(nan_at_weight_0, weight=r),
        "mean of halves": context.map_reduce(
            lambda i: torch.tensor([1000.0, 60_000.0], dtype=torch.float16), range(200), "mean"
        ),
        "minimum of halves": context.map_reduce(lambda i: torch.tensor([float(i)]).half(), range(1, 9), "min"),
        "rows": context.map_gather(lambda row: row.sum(), torch.arange(8.0).view(4, 2)),
        "an array": context.map_reduce(lambda x: float(x), numpy.array([1.0, 2.0, 5.0])),
    }


def test_values_of_all_dtypes_have_the_expected_results_and_dtypes():
    expected = {
        "complex mean": torch.tensor([1 + 2j, 4j]) * 2,
        "small integers": torch.tensor([600, 303]),
        "their minimum": torch.tensor([200, 100], dtype=torch.uint8),
        "mean without replicas of weight 0": torch.tensor([2.0, (4.0 + 2 * 8.0) / 3]),
        "mean of halves": torch.tensor([1000.0, 60_000.0], dtype=torch.float16),
        "minimum of halves": torch.ones(1, dtype=torch.float16),
        "rows": [torch.tensor(x) for x in (1.0, 5.0, 9.0, 13.0)],
        "an array": 8.0,
    }
    for found in (*InProcessCluster(RANKS).run(values_of_all_types), *run(values_of_all_types, ranks=RANKS)):
        torch.testing.assert_close(found, expected)


def test_gradients_flow_through_complex_numbers():
    def gradient() -> complex:
        context = thinwire.Replicator().context
        x = torch.tensor([1 + 1j], requires_grad=True)
        (context.all_mean(x).abs().square().sum() * (context.rank + 1)).backward()
        return complex(x.grad)

    # The loss is |mean|^2, weighted 1 and 2. Its gradient is 2 * mean, times 1/2 for the mean of two.
    assert InProcessCluster(2).run(gradient) == [pytest.approx(3 * (1 + 1j))] * 2


def test_a_replica_of_weight_0_gets_a_zero_gradient():
    def gradient() -> float:
        context = thinwire.Replicator().context
        x = torch.tensor(3.0, requires_grad=True)
        context.weighted_mean(x.square(), weight=context.rank).backward()
        return float(x.grad)

    # Both replicas backpropagate through the mean, which is the value of replica 1 alone.
    assert InProcessCluster(2).run(gradient) == [0.0, 2 * 6.0]


def counted(act: Callable[[thinwire.Context], object], checked: bool) -> int:
    """The link bytes of the first of four replicas for a call."""

    def replica() -> int:
        replicator = thinwire.Replicator(checked=checked)
        act(replicator.context)
        return replicator.meter.link_bytes

    return InProcessCluster(4).run(replica)[0]
