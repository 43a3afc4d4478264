"""`make bench`: every figure is a ratio within one run, beside its bar where there is one."""

import os

from rich.console import Console
from rich.table import Table

from benchmarks import hook, links, power_sgd

if __name__ == "__main__":
    table = Table("what", "ratio", "bar", caption=f"load at the start: {os.getloadavg()[0]:.1f}")
    for what, ratio, judged in (*power_sgd.run(), *hook.run(), *links.run()):
        table.add_row(what, f"{ratio:.2f}", judged)
    Console().print(table)
