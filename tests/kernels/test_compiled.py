"""Compiled loops are imported on first use; without numba, thinwire warns once and uses the twins."""

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
with warnings.catch_warnings(record=True) as shown:
    warnings.simplefilter("always")
    state = reducer.init(x, 0)
    for _ in range(3):
        rounds = extend.lockstep([(extend.all_ranks(1), reducer.reduce(x, state))])
        (((reply, state),),) = simulate.Simulated(1).run([rounds])
print(len(shown), *(warning.message for warning in shown))
print(reply.reduced.dense().norm().item())
"""


def python(code: str, **environment: str) -> list[str]:
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_importing_thinwire_neither_imports_numba_nor_compiles() -> None:
    assert python("import sys, thinwire, thinwire.cli; print('numba' in sys.modules)") == ["False"]


def test_without_numba_results_agree_and_one_warning_is_shown() -> None:
    shown, norm = python("import sys; sys.modules['numba'] = None" + STEPS)
    assert shown.startswith("1 thinwire runs without its compiled loops")
    no_warnings, same_norm = python(STEPS)
    assert no_warnings == "0"
    assert float(norm) == pytest.approx(float(same_norm), rel=1e-5)


def test_without_a_cache_folder_one_warning_is_shown() -> None:
    refuse = "import numba.core.caching as c; c.CacheImpl._locator_classes = []"
    shown, _ = python(refuse + STEPS)
    assert shown.startswith("1 thinwire runs without its compiled loops")


def test_compiled_loops_accept_contiguous_32_bit_floats_only() -> None:
    x = torch.zeros(4, 6)
    assert loops_for(x, x) is not None
    for other in (x.double(), x.bfloat16(), x.T, x.to("meta")):
        assert loops_for(x, other) is None


def test_every_loop_is_found_by_name_after_all_files_are_imported() -> None:
    loops = pytest.importorskip("thinwire.kernels.loops")
    for file in loops.LOOPS:
        importlib.import_module(f"thinwire.kernels.loops.{file}")
    for name in loops.FILES:
        assert callable(getattr(loops, name)), f"{name} is a file as well"
    with pytest.raises(AttributeError, match="no loop 'unknown'"):
        loops.unknown  # noqa: B018
