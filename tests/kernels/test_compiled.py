"""Compiled loops are there when they are needed, and not before; without numba all goes on, and it is said once."""

import importlib
import os
import subprocess
import sys

import pytest
import torch

from thinwire.kernels.compiled import loops_for

STEPS = """
import warnings
import torch
import thinwire
from thinwire import extend, simulate

reducer = thinwire.ErrorFeedback(thinwire.PowerSGD(2))
x = torch.arange(240.0).sin().view(12, 20)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    state = reducer.init(x, 0)
    for _ in range(3):
        rounds = extend.lockstep([(extend.all_ranks(1), reducer.reduce(x, state))])
        (((reply, state),),) = simulate.Simulated(1).run([rounds])
print(len(said), *(warning.message for warning in said))
print(reply.reduced.dense().norm().item())
"""


def python(code: str, **environment: str) -> list[str]:
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_importing_thinwire_neither_imports_numba_nor_compiles() -> None:
    assert python("import sys, thinwire, thinwire.cli; print('numba' in sys.modules)") == ["False"]


def test_without_numba_all_goes_on_and_it_is_said_once() -> None:
    said, norm = python("import sys; sys.modules['numba'] = None" + STEPS)
    assert said.startswith("1 thinwire runs without its compiled loops")
    nothing_said, same_norm = python(STEPS)
    assert nothing_said == "0"
    assert float(norm) == pytest.approx(float(same_norm), rel=1e-5)


def test_where_nothing_can_be_kept_all_goes_on_and_it_is_said_once() -> None:
    refuse = "import numba.core.caching as c; c.CacheImpl._locator_classes = []"
    said, _ = python(refuse + STEPS)
    assert said.startswith("1 thinwire runs without its compiled loops")


def test_compiled_loops_take_contiguous_floats_of_32_bits() -> None:
    x = torch.zeros(4, 6)
    assert loops_for(x, x) is not None
    for other in (x.double(), x.bfloat16(), x.T, x.to("meta")):
        assert loops_for(x, other) is None


def test_every_loop_is_found_by_its_name_whatever_was_imported_before() -> None:
    loops = pytest.importorskip("thinwire.kernels.loops")
    for file in loops.LOOPS:
        importlib.import_module(f"thinwire.kernels.loops.{file}")
    for name in loops.FILES:
        assert callable(getattr(loops, name)), f"{name} is a file as well"
    with pytest.raises(AttributeError, match="no loop 'unknown'"):
        loops.unknown  # noqa: B018
