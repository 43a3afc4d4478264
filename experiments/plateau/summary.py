"""Write the tables of results/plateau/README.md and docs/workloads.md, and figures.json, from the finished runs.

python experiments/plateau/summary.py
"""

import json
import re
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from thinwire.lab.recording.runs import Run

ROOT = Path(__file__).resolve().parents[2]
STUDY = ROOT / "results" / "plateau"
CORES = 2  # a run that has the machine to itself takes its CPU time over the number of cores
UNITS = {"accuracy": (100, 1, "% accuracy"), "iou": (100, 1, "% mean IoU"), "bits": (1, 3, "bits per character")}
RUNS = ["task", "method", "seed", "test metric", "best step", "steps", "CPU minutes / 2"]
DENSE = ["task", "seeds", "test metric", "minutes", "best validation at"]


def displayed(value: float, metric: str) -> str:
    factor, digits, unit = next(unit for name, unit in UNITS.items() if name in metric)
    return f"{value * factor:.{digits}f} {unit}"


def minutes(run: Run) -> float:
    return run.took["cpu"] / CORES / 60


def run_rows(runs: list[Run]) -> tuple[list[list[Any]], list[list[str]]]:
    """The cells of the study's table, as figures and as text."""
    figures, texts = [], []
    for run in runs:
        value = run.metrics[run.metric]
        names = [f"`{run.workload}`", f"`{run.label or run.method}`"]
        figures.append([*names, run.seed, value, run.best_step, run.steps, minutes(run)])
        shown = [displayed(value, run.metric), f"{run.best_step:,}", f"{run.steps:,}", f"{minutes(run):.1f}"]
        texts.append([*names, str(run.seed), *shown])
    return figures, texts


def dense_rows(runs: list[Run]) -> tuple[list[list[Any]], list[list[str]]]:
    """The same of the table of plateaus: dense, over its seeds."""
    tasks: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        if run.method == "Average()" or run.label == "dense" or run.method == "dense":
            tasks[run.workload].append(run)
    figures: list[list[Any]] = []
    texts = []
    for task, seeds in tasks.items():
        values = [run.metrics[run.metric] for run in seeds]
        shares = [run.best_step / run.steps for run in seeds]
        spread = stdev(values) if len(values) > 1 else None
        text = displayed(mean(values), seeds[0].metric)
        if spread is not None:
            number, unit = text.split(" ", 1)
            sign = " %" if unit.startswith("%") else ""
            text = f"{number}{sign} ± {displayed(spread, seeds[0].metric).split(' ')[0]} {unit}"
        cell = [mean(values), spread] if spread is not None else mean(values)
        took = mean(map(minutes, seeds))
        figures.append([f"`{task}`", len(seeds), cell, took, shares if len(shares) > 1 else shares[0]])
        at = ", ".join(f"{share:.0%}".replace("%", " %") for share in shares)
        texts.append([f"`{task}`", str(len(seeds)), text, f"{took:.1f}", at])
    return figures, texts


def with_table(page: str, columns: list[str], rows: list[list[str]]) -> str:
    """The page with the rows of its table with these columns replaced."""
    head = f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n"
    table = head + "".join(f"| {' | '.join(row)} |\n" for row in rows)
    found = re.search(re.escape(head) + r"(?:\|.*\n)*", page)
    if found is None:
        raise SystemExit(f"a page has no table with the columns {', '.join(columns)}")
    return page[: found.start()] + table + page[found.end() :]


def main() -> None:
    runs = sorted(
        (Run.load(path) for path in STUDY.rglob("*.run.json")),
        key=lambda run: (run.workload, run.label or run.method, run.seed),
    )
    pages = {"results/plateau/README.md": (RUNS, run_rows(runs)), "docs/workloads.md": (DENSE, dense_rows(runs))}
    documents: dict[str, Any] = {}
    for name, (columns, (figures, texts)) in pages.items():
        page = ROOT / name
        page.write_text(with_table(page.read_text("utf-8"), columns, texts), "utf-8")
        documents[name] = {"tables": [{"columns": columns, "rows": figures}]}
    documents["results/plateau/README.md"]["complete"] = True
    (STUDY / "figures.json").write_text(json.dumps({"documents": documents}, indent=1) + "\n")


if __name__ == "__main__":
    main()
