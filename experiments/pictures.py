"""Draw the pictures of the studies whose figures are not curves of training runs, from their figures.json.

python experiments/pictures.py                  # all of them, to results/STUDY/figures.png
python experiments/pictures.py bench gradients  # these
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

RESULTS = Path(__file__).resolve().parents[1] / "results"
Table = dict[str, Any]


def tables_of(study: str) -> list[Table]:
    figures = json.loads((RESULTS / study / "figures.json").read_text())
    tables: list[Table] = figures["documents"][f"results/{study}/README.md"]["tables"]
    return tables


def first(cell: Any) -> float:
    """A figure without its standard error."""
    return float(cell[0] if isinstance(cell, list) else cell)


def bench(axes: list[Axes]) -> None:
    table = tables_of("bench")[0]
    methods = [row[0].replace("`", "") for row in table["rows"]]
    for axis, column in zip(axes, (1, 2), strict=True):
        axis.barh(methods, [row[column] for row in table["rows"]])
        axis.axvline(1, color="black", linewidth=0.5)
        axis.invert_yaxis()
        axis.set(title=table["columns"][column], xlabel="speed-up over fp32 DDP")


def contraction(axes: list[Axes]) -> None:
    data = json.loads((RESULTS / "contraction" / "figures.json").read_text())["data"]
    for axis, name in zip(axes, ("cifar10-resnet18", "cifar10-vgg16"), strict=True):
        for method, bits, error in data[name]["rows"]:
            unbiased = first(error) > 1
            axis.scatter(bits, first(error), color="C1" if unbiased else "C0", s=12)
            if not method.startswith("Chain") and (first(error) < 0.8 or unbiased):  # the rest would overlap
                axis.annotate(
                    f" {method}", (bits, first(error)), fontsize=4, va="center", ha="right" if bits > 2 else "left"
                )
        axis.set(title=name, xlabel="bits per entry", ylabel="relative error", xscale="log", yscale="log")


def gradients(axes: list[Axes]) -> None:
    _, *forms = tables_of("gradients")
    for axis, table, name in zip(axes, forms, ("fp8-152", "fp4-121", "int8"), strict=True):
        for color, task in enumerate(dict.fromkeys(row[0] for row in table["rows"])):
            rows = [row for row in table["rows"] if row[0] == task]
            for column, style in (("GenNorm", "-"), ("Normal", ":"), ("table", "--")):
                index = table["columns"].index(column)
                label = f"{task}, {column}" if table is forms[0] else None
                share = [row[1] / rows[-1][1] for row in rows]
                axis.plot(share, [row[index] for row in rows], style, color=f"C{color}", label=label)
        axis.set(title=name, xlabel="share of the steps", ylabel="bits per entry")
    axes[0].legend(fontsize=5)


def interruptions(axes: list[Axes]) -> None:
    (table,) = tables_of("interruptions")
    labels = [f"{ranks}, {method.strip('`')}, {first(kills):.0f} kills" for ranks, method, kills, _ in table["rows"]]
    for row, (*_, resumed) in enumerate(table["rows"]):
        steps = resumed if isinstance(resumed, list) else [resumed]
        axes[0].plot([0, 503], [row, row], color="lightgray")
        axes[0].scatter(steps, [row] * len(steps), color="C0")
    axes[0].set(yticks=range(len(labels)), yticklabels=labels, xlabel="steps after which a killed run resumed")
    axes[0].invert_yaxis()


def plateau(axes: list[Axes]) -> None:
    for path in sorted((RESULTS / "plateau").rglob("*.run.json")):
        run = json.loads(path.read_text())
        axis = axes[0] if run["better"] == "higher" else axes[1]
        points = run["evaluations"]
        label = f"{run['workload']}, {run['label']}, seed {run['seed']}"
        axis.plot([point["step"] for point in points], [point[run["metric"]] for point in points], label=label)
    axes[0].set(xlabel="step", ylabel="test accuracy")
    axes[1].set(xlabel="step", ylabel="test bits per character")
    for axis in axes:
        axis.legend(fontsize=6)


def replicator(axes: list[Axes]) -> None:
    (table,) = tables_of("replicator")
    for axis, column in zip(axes, ("payload, bytes", "link, bytes"), strict=True):
        index = table["columns"].index(column)
        rows = [row for row in table["rows"] if row[1] == 4]
        axis.bar([row[0].strip("`") for row in rows], [row[index] for row in rows])
        axis.set(title="4 replicas, 100 steps", ylabel=column, yscale="log")


def sizes(axes: list[Axes]) -> None:
    by_rank, by_ranks = tables_of("sizes")
    axes[0].bar([row[0][-4] for row in by_rank["rows"]], [row[2] for row in by_rank["rows"]])
    axes[0].set(
        title="PowerSGD on ResNet-18, 4 ranks", xlabel="rank of the factors", ylabel="bytes on the link per step"
    )
    for index, column in enumerate(by_ranks["columns"][1:], start=1):
        ranks = [int(row[0]) for row in by_ranks["rows"]]
        axes[1].plot(ranks, [row[index] for row in by_ranks["rows"]], "o-", label=column.replace("`", ""))
    axes[1].set(title="8-bit values on an MLP", xlabel="ranks", ylabel="bytes on the link per step", yscale="log")
    axes[1].legend(fontsize=6)


# The plot of each study and its number of panels.
PICTURES: dict[str, tuple[Callable[[list[Axes]], None], int]] = {
    "bench": (bench, 2),
    "contraction": (contraction, 2),
    "gradients": (gradients, 3),
    "interruptions": (interruptions, 1),
    "plateau": (plateau, 2),
    "replicator": (replicator, 2),
    "sizes": (sizes, 2),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=f"of {', '.join(PICTURES)} (default: all)")
    for study in parser.parse_args().studies or PICTURES:
        plot, panels = PICTURES[study]
        figure, axes = pyplot.subplots(1, panels, figsize=(5 * panels, 4), layout="constrained", squeeze=False)
        plot(list(axes[0]))
        figure.savefig(RESULTS / study / "figures.png", dpi=100)
        pyplot.close(figure)


if __name__ == "__main__":
    main()
