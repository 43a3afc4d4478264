"""`make bench`: every figure is a ratio within one run, beside its bar where there is one."""

from rich.console import Console
from rich.table import Table

from benchmarks import hook, power_sgd

if __name__ == "__main__":
    table = Table("what", "ratio", "bar")
    for what, ratio, bar in (*power_sgd.run(), *hook.run()):
        table.add_row(what, f"{ratio:.2f}", bar)
    Console().print(table)
