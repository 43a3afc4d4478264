"""Selecting entries with error feedback, of 25 million, against copying the gradient once.

A step is the work of one rank: it adds the residual, selects entries, packs the message and updates the residual.
Beside it, the plain torch operations that the tests compare the compiled loops with.
"""

from collections.abc import Callable
from itertools import cycle
from typing import Any

import torch
from torch import Tensor

from benchmarks.rows import Row, at_least, at_most
from benchmarks.timing import interleaved, threads_of_torch
from thinwire import AdaComp, ErrorFeedback, TopK
from thinwire.core.lazy import DeferredDifference, residual_after
from thinwire.extend import Reducer, Reply
from thinwire.kernels import bins
from thinwire.kernels import selection as top_k
from thinwire.wire import payload

SIZE = 25_000_000
RATIO = 0.01
COUNT = int(RATIO * SIZE)
WINDOWS, APART = 64, 16
SETTLED = 40  # steps after which the residual has its usual size
TOP_K_TARGETS, ADA_COMP_TARGETS = {1: 2.5, 2: 3.0}, {1: 3.0, 2: 3.5}  # the maximum number of copies, by threads
ADVERSARIAL_TARGET = 6.0
FASTER_THAN_TORCH, FASTER_THAN_PLAIN = 15.0, 5.0


def run(repeats: int = 9) -> list[Row]:
    # Overlapping windows of one tensor, so that an entry differs between them; each starts aligned like a tensor.
    row = torch.randn(SIZE + APART * WINDOWS, generator=torch.Generator().manual_seed(0))
    gradients = [row[APART * i :][:SIZE] for i in range(WINDOWS)]
    rows = []
    for threads in TOP_K_TARGETS:
        with threads_of_torch(threads):
            rows += _rows(gradients, threads, repeats)
    with threads_of_torch(1):
        rows += _adversarial_rows(repeats)
    return rows


def _rows(gradients: list[Tensor], threads: int, repeats: int) -> list[Row]:
    gradient = gradients[0]
    target, out = torch.empty_like(gradient), torch.empty_like(gradient)
    settled = settled_rest(gradients)
    jobs: dict[str, Callable[[], object]] = {
        "copy": lambda: target.copy_(gradient),
        "top-k": picking(gradients),
        "top-k step": step_of(ErrorFeedback(TopK(RATIO)), gradients),
        "AdaComp": step_of(AdaComp(500), gradients, decoding=False),
        "AdaComp(500)": step_of(AdaComp(500), gradients),
        "AdaComp(50)": step_of(AdaComp(50), gradients),
    }
    slow: dict[str, Callable[[], object]] = {
        "torch.topk": lambda: gradient.abs().topk(COUNT, sorted=False),
        "plain AdaComp(500)": lambda: bins._plain(gradient, settled, out, 500, 2.0),
    }
    interleaved(jobs, SETTLED)
    best = interleaved(jobs, repeats) | interleaved(slow, 2)
    copies = {name: seconds / best["copy"] for name, seconds in best.items()}
    on = f"{threads} thread{'s' * (threads > 1)}"
    faster = best["torch.topk"] / best["top-k"]
    than_plain = best["plain AdaComp(500)"] / best["AdaComp"]
    picked, adapted = copies["top-k"], copies["AdaComp"]
    return [
        Row(f"exact top-k 1 % with error feedback, {on} / copy", picked, at_most(picked, TOP_K_TARGETS[threads])),
        Row(f"torch.topk alone, {on} / exact top-k with error feedback", faster, at_least(faster, FASTER_THAN_TORCH)),
        Row(f"full step of ErrorFeedback(TopK(0.01)), {on} / copy", copies["top-k step"]),
        Row(f"AdaComp(500), selecting to packing, {on} / copy", adapted, at_most(adapted, ADA_COMP_TARGETS[threads])),
        Row(f"AdaComp(500) selecting in plain torch, {on} / that", than_plain, at_least(than_plain, FASTER_THAN_PLAIN)),
        Row(f"full step of AdaComp(500), {on} / copy", copies["AdaComp(500)"]),
        Row(f"full step of AdaComp(50), {on} / copy", copies["AdaComp(50)"]),
    ]


def _adversarial_rows(repeats: int) -> list[Row]:
    kinds = {
        "constant": torch.full((SIZE,), 2.5),
        "periodic": torch.arange(SIZE).remainder(SIZE // 2**15).float(),
        "all-zero": torch.zeros(SIZE),
        "denormal": torch.randn(SIZE, generator=torch.Generator().manual_seed(0)) * 1e-41,
    }
    rows = []
    for kind, gradient in kinds.items():
        target = torch.empty_like(gradient)
        best = interleaved({"copy": lambda t=target, g=gradient: t.copy_(g), "top-k": picking([gradient])}, repeats)
        copies = best["top-k"] / best["copy"]
        rows.append(Row(f"exact top-k 1 % of {kind} entries / copy", copies, at_most(copies, ADVERSARIAL_TARGET)))
    return rows


def picking(gradients: list[Tensor]) -> Callable[[], None]:
    """Add the residual, select entries and update the residual, for each gradient in turn."""
    current: dict[str, Any] = {"rest": DeferredDifference(torch.zeros(SIZE)), "out": torch.empty(SIZE)}
    turns = cycle(gradients)

    def pick() -> None:
        rest, out = current["rest"], current["out"]
        found = top_k.largest_of_sum(next(turns), rest, 1.0, out, COUNT)
        current["rest"], current["out"] = residual_after(out, found), rest.total

    return pick


def settled_rest(gradients: list[Tensor]) -> Tensor:
    """The residual of AdaComp(500) after many steps."""
    rest, out = torch.zeros(SIZE), torch.empty(SIZE)
    for gradient in gradients[:SETTLED]:
        selected = bins.add_and_select(gradient, rest, out, 500, 2.0)
        rest, out = residual_after(out, selected).dense(), rest
    return rest


def step_of(reducer: Reducer, gradients: list[Tensor], decoding: bool = True) -> Callable[[], None]:
    """Add the residual, select, pack and update the residual; with decoding, as in a real step, or without."""
    current = {"state": reducer.init(gradients[0], 0)}
    turns = cycle(gradients)

    def step() -> None:
        gradient = next(turns)
        conversation = reducer.reduce(gradient, current["state"])
        message = next(conversation)
        buffer = payload.encode(message.tensor, message.codec, message.seed)
        sent = payload.decode_lazy(buffer, message.codec, message.seed, gradient) if decoding else message.tensor
        try:
            conversation.send(Reply(sent, sent))
        except StopIteration as end:
            current["state"] = end.value[1]

    return step
