"""`make bench`: every figure is a ratio within one run, beside its target if it has one.

`python -m benchmarks selection indices` runs only these benchmarks.
"""

import os
import sys

from rich.console import Console
from rich.table import Table

from benchmarks import (
    ada_comp,
    coders,
    codes,
    first_use,
    fuzz,
    hook,
    indices,
    links,
    power_sgd,
    quantize,
    replicator,
    selection,
    training,
)
from tests.compiled_loops import cache_by_digest

BENCHMARKS = {
    module.__name__.removeprefix("benchmarks."): module
    for module in (
        *(power_sgd, selection, ada_comp, quantize, indices, coders, fuzz, first_use),
        *(hook, links, codes, replicator, training),
    )
}

if __name__ == "__main__":
    unknown = [name for name in sys.argv[1:] if name not in BENCHMARKS]
    if unknown:
        sys.exit(f"there is no benchmark {unknown[0]!r}; choose from {', '.join(BENCHMARKS)}")
    cache_by_digest()
    table = Table("what", "ratio", "target", caption=f"load at the start: {os.getloadavg()[0]:.1f}")
    for name in sys.argv[1:] or BENCHMARKS:
        for what, ratio, verdict in BENCHMARKS[name].run():
            table.add_row(what, f"{ratio:.2f}", verdict)
    Console().print(table)
