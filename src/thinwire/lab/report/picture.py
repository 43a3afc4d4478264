"""A picture for a README: the metric against time and against bytes."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from thinwire.lab.report import number_format as units
from thinwire.lab.report.charts import curves
from thinwire.lab.report.charts.curves import Curve
from thinwire.lab.report.charts.style import Look
from thinwire.lab.report.summary import Entry, Section
from thinwire.lab.report.table import heading

LETTERS = 130  # characters that fit on one row of the legend
PANELS, ROW = 3.8, 0.2  # height in inches of the panels with their heading, and of a row of the legend


def check_drawing() -> None:
    """Raise an error if matplotlib is missing, before any run starts."""
    if find_spec("matplotlib") is None:
        raise ValueError("the picture needs matplotlib: pip install 'thinwire[lab]'")


def draw(section: Section, looks: dict[str, Look], path: Path) -> None:
    """Two panels with one line per method: the metric, or the loss if a run has no evaluations before its end."""
    check_drawing()
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter, NullFormatter

    run = section.first
    evaluated = all(run.evaluations for run in section.runs)
    find = curves.metrics if evaluated else curves.losses
    names = [_label(entry) for entry in section.entries]
    columns = max(1, min(len(names), LETTERS // (max(map(len, names)) + 6)))  # 6 for the line sample and its margins
    height = max(4.6, PANELS + ROW * -(-len(names) // columns))
    figure, panels = pyplot.subplots(1, 2, figsize=(10, height), dpi=200, sharey=True, layout="constrained")
    for panel, against in zip(panels, ("seconds", "payload_bytes"), strict=True):
        for entry, curve in zip(section.entries, find(section, against), strict=True):
            _plot(panel, entry, curve, looks[entry.label])
        panel.grid(alpha=0.25, linewidth=0.5)
        panel.spines[["top", "right"]].set_visible(False)
    time, nbytes = panels
    if not evaluated:
        time.set_yscale("log")
    else:
        time.set_ylim(*curves.window(section, find(section, "seconds")))
        if units.is_share(run.metric):
            time.yaxis.set_major_formatter(FuncFormatter(lambda value, _: units.percent(value)))
    time.set_ylabel(units.metric_name(run.metric) if evaluated else "training loss")
    time.set_xlim(left=0)
    time.set_xlabel("training time in seconds" + (", modeled" if section.modeled else ""))
    nbytes.set(xlabel="payload bytes of one rank", xscale="log")
    nbytes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: units.rounded_bytes(value)))
    nbytes.xaxis.set_minor_formatter(NullFormatter())
    figure.suptitle(heading(section), fontsize=11)
    lines, _ = time.get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
    figure.savefig(path)
    pyplot.close(figure)


def _plot(panel: Any, entry: Entry, curve: Curve, look: Look) -> None:
    style: Any = (0, tuple(map(int, look.dash.split()))) if look.dash else "-"
    for seed in curve.seeds:
        panel.plot(*zip(*seed, strict=True), color=look.printed, linewidth=0.6, alpha=0.25)
    width = 2.4 if entry.is_dense else 1.8
    panel.plot(
        *zip(*curve.mean, strict=True), color=look.printed, linewidth=width, linestyle=style, label=_label(entry)
    )


def _label(entry: Entry) -> str:
    metric = units.metric_text(entry.runs[0].metric, entry.metric.mean)
    return f"{entry.label}: {metric}, ratio {entry.ratio.mean:.1f}x".replace("$", r"\$")
