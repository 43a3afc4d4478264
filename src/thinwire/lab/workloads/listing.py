"""The tasks in a table."""

from collections.abc import Mapping
from typing import Any

import torch
from rich.table import Table

from thinwire.lab.workload import Workload


def described(tasks: Mapping[str, Workload]) -> dict[str, dict[str, Any]]:
    """What is to be known of each task, by its name."""
    return {
        name: {
            "about": (task.__doc__ or "").splitlines()[0],
            "parameters": parameters(task),
            "batch": task.batch,
            "budgets": {budget: amount._asdict() for budget, amount in task.budgets.items()},
            "metric": task.metric,
            "better": task.better,
        }
        for name, task in tasks.items()
    }


def parameters(task: Workload) -> int:
    with torch.device("meta"):  # shapes without memory
        return sum(parameter.numel() for parameter in task.model().parameters())


def table(tasks: Mapping[str, Workload]) -> Table:
    """The same, to be read by people."""
    shown = Table("name", "what it is", "parameters", "batch", "epochs: small", "full", "compared by")
    shown.columns[0].no_wrap = True
    for column in shown.columns[2:6]:
        column.justify = "right"
    for name, task in described(tasks).items():
        small, full = (f"{task['budgets'][budget]['epochs']:g}" for budget in ("small", "full"))
        numbers = f"{task['parameters']:,}", str(task["batch"]), small, full
        shown.add_row(f"[bold]{name}", task["about"], *numbers, task["metric"])
    return shown
