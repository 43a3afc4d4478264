"""The study's plots."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from codes import Result
from record import Record
from tables import Shared

KINDS = {
    "quantizer": ("tab:blue", "o", "-"),
    "quantizer, entropy-coded": ("tab:cyan", "o", "-"),
    "leader alone": ("tab:olive", "s", "-"),
    "order alone, and with a quantizer": ("black", "v", "-"),
    "linear (PCA), float32": ("tab:green", "^", ":"),
    "linear (PCA), 8 bits": ("tab:green", "^", "-"),
    "linear (PCA), 4 bits, entropy-coded": ("limegreen", "^", "-"),
    "linear (PCA), index order, 4 bits, entropy-coded": ("tab:gray", "^", "-"),
    "auto-encoder, float32": ("tab:red", "x", ":"),
    "auto-encoder, float16": ("tab:red", "x", "--"),
    "auto-encoder, quantized": ("tab:red", "D", ""),
    "auto-encoder, quantized, entropy-coded": ("tab:orange", "D", ""),
    "auto-encoder, rate term": ("tab:purple", "*", ""),
    "auto-encoder, server form": ("tab:brown", "P", ""),
}


def kind(result: Result) -> str | None:
    """The curve of a result, or None."""
    name = result.name
    coded = name.endswith("entropy")
    if name.startswith("quantizer"):
        return "quantizer, entropy-coded" if coded else "quantizer"
    if name.startswith("leader"):
        return None if "float32" in name else "leader alone"
    if name.startswith("order"):
        return "order alone, and with a quantizer"
    if name.startswith("pca"):
        if "index" in name:
            return "linear (PCA), index order, 4 bits, entropy-coded" if coded else None
        return f"linear (PCA), {'4 bits, entropy-coded' if coded else name.rsplit(', ', 1)[1]}"
    if name.startswith("innovation"):
        return "auto-encoder, server form"
    if "rate term" in name:
        return "auto-encoder, rate term"
    if "float" in name:
        return f"auto-encoder, {name.rsplit(', ', 1)[1]}"
    return "auto-encoder, quantized" + (", entropy-coded" if coded else "")


def against_bits(record: Record, found: list[Result], path: Path) -> None:
    """Error of the mean against bits, both on log scales."""
    figure, axes = plt.subplots(figsize=(7.5, 5), layout="constrained")
    for label, (color, marker, line) in KINDS.items():
        points = sorted((r.bits + r.order / record.ranks, r.real) for r in found if kind(r) == label)
        if points:
            axes.plot(*zip(*points, strict=True), color=color, marker=marker, linestyle=line, ms=5, lw=1.2, label=label)
    axes.set(
        xscale="log", yscale="log", title=f"{record.workload}, {record.ranks} ranks, {record.values} values per step"
    )
    axes.set_xlabel("bits per value that a rank sends (mean; including the order)")
    axes.set_ylabel("relative error of the mean gradient at the indices")
    ticks = [0.25, 0.5, 1, 2, 4, 8, 16, 32]
    axes.set_xticks(ticks, [f"{x:g}" for x in ticks])
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
    figure.savefig(path, dpi=90)
    plt.close(figure)


def over_training(record: Record, found: Shared, path: Path) -> None:
    """The variance explained by the leader's values, by layer and window."""
    figure, panels = plt.subplots(1, 2, figsize=(8, 1.2 + 0.17 * len(record.names)), layout="constrained", sharey=True)
    for axes, what, title in zip(panels, (found.others, found.mean), ("of another rank's", "of the mean"), strict=True):
        image = axes.imshow(what[:-1], vmin=0, vmax=1, aspect="auto", cmap="viridis")
        axes.set_title(f"variance {title} values explained", fontsize=9)
        axes.set_xticks(range(len(found.starts)), [str(s) for s in found.starts], fontsize=7)
        axes.set_xlabel("first step of the window", fontsize=8)
    panels[0].set_yticks(range(len(record.names)), [n.removesuffix(".weight") for n in record.names], fontsize=6)
    figure.colorbar(image, ax=panels)
    figure.suptitle(f"{record.workload}: by a multiple of the leader's values", fontsize=10)
    figure.savefig(path, dpi=90)
    plt.close(figure)
