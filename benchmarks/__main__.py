"""`make bench`: every figure is a ratio within one run, beside its bar where there is one."""

import os

from rich.console import Console
from rich.table import Table

from benchmarks import ada_comp, first_use, hook, indices, links, power_sgd, quantise, selection
from tests.compiled_loops import keep_by_digest

MEASURED = (power_sgd, selection, ada_comp, quantise, indices, first_use, hook, links)

if __name__ == "__main__":
    keep_by_digest()
    table = Table("what", "ratio", "bar", caption=f"load at the start: {os.getloadavg()[0]:.1f}")
    for what, ratio, judged in (row for module in MEASURED for row in module.run()):
        table.add_row(what, f"{ratio:.2f}", judged)
    Console().print(table)
