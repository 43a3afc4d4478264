"""docs/life_of_a_gradient.md names the calls that a bucket takes, in their order, and all files that take part."""

import re
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire

from .processes import run

PAGE = (Path(__file__).parents[2] / "docs" / "life_of_a_gradient.md").read_text("utf-8")
STEP = re.compile(r"^\| \d+ \| `([^`]+)` \| `([^`]+)` \|", re.MULTILINE)
CODEC = re.compile(r"^\| `([^`]+)` \| (`[^|]+`) \|", re.MULTILINE)
MOST_FILES = 12
SOURCE = Path(thinwire.__file__).parent


def traced() -> list[tuple[str, str]]:
    """The file and the qualified name of each function of thinwire that one step under DDP calls, in order."""
    calls: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, argument: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(SOURCE):
            calls.append((path.relative_to(SOURCE).as_posix(), frame.f_code.co_qualname))

    torch.manual_seed(0)
    ddp = DistributedDataParallel(nn.Sequential(nn.Linear(100, 200), nn.ReLU(), nn.Linear(200, 10)))
    threading.setprofile(note)  # the worker thread begins with attach
    try:
        handle = thinwire.attach(ddp, "topk")
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]  # it takes None
    for _ in range(2):  # in the first step, buckets and compiled loops are new
        handle._session.worker.wait()
        calls.clear()
        sys.setprofile(note)
        try:
            ddp(torch.randn(4, 100)).square().mean().backward()
        finally:
            sys.setprofile(None)
    handle.detach()
    return calls


def test_a_bucket_takes_the_documented_way() -> None:
    steps = STEP.findall(PAGE)
    codec = [(file, name) for file, names in CODEC.findall(PAGE) for name in re.findall(r"`([^`]+)`", names)]
    assert len({file for file, _ in steps}) <= MOST_FILES
    helpers = set(re.findall(r"`((?:\w+/)+\w+\.py)`", PAGE.split("## Helpers")[1]))
    known = {file for file, _ in (*steps, *codec)} | helpers
    for calls in run(traced, ranks=2):
        first = {call: i for i, call in reversed(list(enumerate(calls)))}
        assert {*steps, *codec} <= first.keys(), "the page names functions that are not called"
        assert sorted(steps, key=first.__getitem__) == steps
        assert {file for file, _ in calls if not file.startswith("kernels/")} == known
