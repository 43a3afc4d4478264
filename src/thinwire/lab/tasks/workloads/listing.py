"""Properties of the tasks, and a table of them."""

from collections.abc import Mapping
from typing import Any

import torch
from rich.table import Table

from thinwire.lab.report.number_format import metric_name
from thinwire.lab.runner.plan import BUDGETS
from thinwire.lab.tasks.workload import Workload


def described(tasks: Mapping[str, Workload]) -> dict[str, dict[str, Any]]:
    """The properties of each task, by name."""
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
    """A table of the tasks for the terminal."""
    shown = Table("task", "parameters", "batch", *BUDGETS, title="epochs by budget; -: no such budget")
    for column in shown.columns[1:]:
        column.justify, column.no_wrap = "right", True
    for name, task in described(tasks).items():
        epochs = (f"{task['budgets'][b]['epochs']:g}" if b in task["budgets"] else "-" for b in BUDGETS)
        about = f"[bold]{name}[/], {metric_name(task['metric']).removeprefix('test ')}\n[dim]{task['about']}[/]"
        shown.add_row(about, f"{task['parameters']:,}", str(task["batch"]), *epochs)
    return shown
