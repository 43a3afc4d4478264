"""Seconds of the first use of the compiled loops: when none was compiled before, and when all were."""

import os
import subprocess
import sys
from tempfile import TemporaryDirectory

from benchmarks.rows import Row, at_most

COLD_TARGET, WARM_TARGET = 10.0, 1.0
ALONE = ("adacomp", "topk", "powersgd", "gennorm")  # as most users meet the loops
STATES = ("none compiled yet", "all compiled before")

USES = """
import sys
from time import process_time

import torch

import thinwire
from thinwire import extend, simulate
from thinwire.core.lazy import copy_
from thinwire.wire import payload

torch.set_num_threads(1)
x = torch.randn(64, 2048, generator=torch.Generator().manual_seed(0))
methods = [thinwire.METHODS[name].built for name in sys.argv[1:]]
if not methods:
    wide = thinwire.BinnedSign(500)  # has codes of 16 bits
    methods += [thinwire.ErrorFeedback(thinwire.PowerSGD(rank)) for rank in (1, 4)]
    methods += [thinwire.ErrorFeedback(thinwire.TopK(ratio)) for ratio in (0.01, 0.2)]
    methods += [thinwire.AdaComp(500), thinwire.AdaComp(40), thinwire.ErrorFeedback(thinwire.SparseSign())]
    methods += [thinwire.ErrorFeedback(thinwire.Quantize(bits)) for bits in (2, 4, 8)]
    methods += [thinwire.ErrorFeedback(thinwire.Sign()), thinwire.ErrorFeedback(thinwire.Ternary())]
    methods += [thinwire.ErrorFeedback(thinwire.ExponentialDither(base)) for base in (2, 3)]
    for coder in (thinwire.Huffman(), thinwire.Rans()):
        entropy = thinwire.Entropy(coder=coder)
        methods += [thinwire.Average(thinwire.Chain(codes, entropy)) for codes in (thinwire.MiniFloat(), wide)]


def use() -> None:
    for method in methods:
        states = [method.init(x, 0) for _ in range(2)]
        for _ in range(2):
            exchanges = [extend.lockstep([(extend.all_ranks(2), method.reduce(x, state))]) for state in states]
            results = simulate.Simulated(2).run(exchanges)
            states = [state for ((reply, state),) in results]
            copy_(torch.empty_like(x), results[0][0][0].reduced)
    if not sys.argv[1:]:
        payload.encode(x, thinwire.Quantize(8, True, block=100_000), 0)


times = []
for _ in range(2):
    start = process_time()
    use()
    times.append(process_time() - start)
print(times[0] - times[1])
"""


def run() -> list[Row]:
    with TemporaryDirectory() as folder:
        cold, warm = (_seconds(folder) for _ in range(2))
    alone = []
    for method in ALONE:
        with TemporaryDirectory() as folder:
            alone += [
                Row(f"first use of {method} alone, {state}: seconds", _seconds(folder, method)) for state in STATES
            ]
    return [
        Row("first use of all loops, none compiled yet: seconds", cold, at_most(cold, COLD_TARGET)),
        Row("first use of all loops, all compiled before: seconds", warm, at_most(warm, WARM_TARGET)),
        *alone,
    ]


def _seconds(folder: str, *methods: str) -> float:
    environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
    command = [sys.executable, "-c", USES, *methods]
    return float(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout)
