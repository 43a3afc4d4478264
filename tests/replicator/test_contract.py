"""If replicas make different calls, all raise one error that shows both lines of code; none waits forever."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import thinwire
from tests.attach.processes import Exited, run
from thinwire import ContractError
from thinwire.simulate import InProcessCluster

RANKS = 3


def error_of(replicator: thinwire.Replicator, act: Callable[[], Any]) -> str:
    try:
        act()
    except ContractError as error:
        return str(error)
    return f"no error on replica {replicator.rank}"


def out_of_order() -> str:
    replicator = thinwire.Replicator()
    context = replicator.context
    context.all_sum(1)

    def act() -> None:
        if context.rank == 1:
            context.all_max({"loss": torch.ones(2)})  # the line of replica 1
        else:
            context.all_sum({"loss": torch.ones(2)})  # the line of the others

    return error_of(replicator, act)


def other_shapes() -> str:
    replicator = thinwire.Replicator()
    x = torch.ones(2 + (replicator.rank == 2))
    return error_of(replicator, lambda: replicator.context.all_mean({"x": [x, 1]}))


def other_structure() -> str:
    replicator = thinwire.Replicator()
    name = "lose" if replicator.rank == 0 else "loss"
    return error_of(replicator, lambda: replicator.context.all_sum({name: 1.0}))


def other_source() -> str:
    replicator = thinwire.Replicator()
    return error_of(replicator, lambda: replicator.context.broadcast(1, source=replicator.rank % 2))


def fewer_inputs() -> str:
    replicator = thinwire.Replicator()

    def inputs(context: thinwire.Context) -> Iterator[int]:  # without a length
        yield from range(2 + (context.rank != 1))

    return error_of(replicator, lambda: replicator.run(lambda context, i: context.all_sum(i), inputs))


def step_against_sum() -> str:
    replicator = thinwire.Replicator()
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    replicator.wrap(model, optimizer)

    def act() -> None:
        model(torch.ones(1, 3)).sum().backward()
        if replicator.rank:
            optimizer.step()
        else:
            replicator.context.all_sum(1)

    return error_of(replicator, act)


def fewer_items() -> str:
    replicator = thinwire.Replicator()
    return error_of(replicator, lambda: replicator.context.map_gather(lambda i: i, range(5 + (replicator.rank == 2))))


def two_wrapped(replicator: thinwire.Replicator) -> list[torch.optim.Optimizer]:
    optimizers = []
    for _ in range(2):
        model = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        replicator.wrap(model, optimizer)
        model(torch.ones(1, 3)).sum().backward()
        optimizers.append(optimizer)
    return optimizers


def steps_in_another_order() -> str:
    replicator = thinwire.Replicator()
    optimizers = two_wrapped(replicator)
    return error_of(replicator, lambda: optimizers[replicator.rank == 2].step())


def averages_of_other_models() -> str:
    replicator = thinwire.Replicator()
    two_wrapped(replicator)
    return error_of(replicator, lambda: replicator.handles[replicator.rank == 2].average())


def other_wrap_settings() -> str:
    replicator = thinwire.Replicator("ErrorFeedback(TopK(0.01))")
    settings = {"on_nonfinite": "skip"} if replicator.rank == 1 else {}
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return error_of(replicator, lambda: replicator.wrap(model, optimizer, overlap=replicator.rank == 1, **settings))


CASES = {
    steps_in_another_order: (
        "replicas 0 and 1 call optimizer.step() of wrap() number 1 at",
        "replica 2 calls optimizer.step() of wrap() number 2 at",
    ),
    averages_of_other_models: (
        "replicas 0 and 1 call average() of wrap() number 1 at",
        "replica 2 calls average() of wrap() number 2 at",
    ),
    other_wrap_settings: (
        "replicas 0 and 2 call wrap() by ErrorFeedback(TopK(0.01)) at",
        "replica 1 calls wrap() by ErrorFeedback(TopK(0.01)), overlap=True, on_nonfinite='skip' at",
    ),
    out_of_order: (
        "replicas 0 and 2 call all_sum of {'loss': float32[2]} at",
        "replica 1 calls all_max of {'loss': float32[2]} at",
    ),
    other_shapes: ("replicas 0 and 1 call all_mean of {'x': [float32[2], float64[]]} at", "replica 2 calls all_mean"),
    other_structure: ("replica 0 calls all_sum of {'lose': float} at", "replicas 1 and 2 call all_sum of {'loss'"),
    other_source: ("replicas 0 and 2 call broadcast from 0 of int at", "replica 1 calls broadcast from 1 of int at"),
    fewer_inputs: ("replicas 0 and 2 call all_sum of int at", "replica 1 calls the end of run() after 2 steps at"),
    step_against_sum: ("replica 0 calls all_sum of int at", "replicas 1 and 2 call optimizer.step()"),
    fewer_items: ("replicas 0 and 1 call map_gather 5 items to int at", "replica 2 calls map_gather 6 items to int at"),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_all_replicas_raise_one_error_with_both_calls_and_their_lines(case):
    for found in (InProcessCluster(RANKS).run(case), run(case, ranks=RANKS)):
        assert len(set(found)) == 1, "all replicas raise the same error"
        assert all(text in found[0] for text in CASES[case]), found[0]
        assert found[0].startswith("the replicas are out of step at call number ")
        assert len(re.findall(r" at test_contract\.py:\d+", found[0])) == 2


def test_the_error_shows_the_lines_of_the_calls():
    text, *_ = InProcessCluster(RANKS).run(out_of_order)
    source = Path(__file__).read_text().splitlines()
    lines = [int(n) for n in re.findall(r"test_contract\.py:(\d+)", text)]
    assert ["the others" in source[n - 1] or "replica 1" in source[n - 1] for n in lines] == [True, True]
    assert len(set(lines)) == 2


def stops(how: str) -> str:
    replicator = thinwire.Replicator()

    def step(context: thinwire.Context, i: int) -> int:
        if i == 2 and context.rank == 1 and how == "raises":
            raise KeyError("boom")
        if i == 2 and context.rank == 1 and how == "dies":
            os._exit(7)
        return context.all_sum(i)

    try:
        replicator.run(step, lambda context: range(5))
    except (ContractError, KeyError) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


@pytest.mark.parametrize(
    "ranks", [lambda: InProcessCluster(RANKS).run(lambda: stops("raises")), lambda: run(stops, "raises", ranks=3)]
)
def test_a_replica_that_raised_is_named_with_its_error_and_its_last_call(ranks):
    first, second, third = ranks()
    assert second == "KeyError: 'boom'"
    for rank, text in ((0, first), (2, third)):
        assert re.match(r"ContractError: rank 1 has stopped: KeyError: 'boom' at test_contract\.py:\d+ \(", text), text
        assert re.search(r"replica 1's last call was all_sum at test_contract\.py:\d+\)", text), text
        assert re.search(rf"while replica {rank} calls all_sum at test_contract\.py:\d+$", text), text


def test_a_replica_that_died_is_named_with_its_last_call():
    first, second, third = run(stops, "dies", ranks=RANKS, dies=1)
    assert second == Exited(7)
    for rank, text in ((0, first), (2, third)):
        assert "rank 1 failed: its connection was closed (replica 1's last call was all_sum at test_contract" in text
        assert f"while replica {rank} calls all_sum" in text


def test_further_calls_after_a_contract_error_are_an_error():
    def act() -> None:
        replicator = thinwire.Replicator()
        error_of(replicator, lambda: replicator.context.all_sum([1] * replicator.rank))
        replicator.context.all_sum(1)

    with pytest.raises(RuntimeError, match="out of step since an earlier error; restart"):
        InProcessCluster(2).run(act)
