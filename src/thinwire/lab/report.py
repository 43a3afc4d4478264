"""What a person sees of finished runs: a table in the terminal, a picture, and a page that holds both."""

import base64
import html
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from thinwire.lab.runs import Run

PICTURE = "loss-against-bytes.png"
THIN_LINK = 100e6  # bits a second
# What a column is called, and what it says of a run.
COLUMNS: dict[str, Callable[[Run], str]] = {
    "accuracy": lambda run: f"{run.metrics['test_accuracy']:.1%}",
    "payload/step": lambda run: human(run.bytes["payload"] / run.steps),
    "link/step": lambda run: human(run.bytes["link"] / run.steps),
    "smaller": lambda run: f"{run.ratio:.1f}x",
    "seconds": lambda run: f"{run.seconds['total']:.1f}",
    "at 100 Mbit/s": lambda run: f"+ {run.bytes['link'] * 8 / THIN_LINK:.1f}",
}
PARTS = ("compute", "encode", "exchange", "decode")
NOTES = (
    "Payload: what one rank had to say. Link: what its network card carried in the busier direction, for the rank that "
    "carried most. Smaller: the gradients' bytes over the payload's.",
    "Seconds: here, where all ranks share one machine and the wire costs nothing. At 100 Mbit/s: the seconds that the "
    "link's bytes would take on top.",
)


def plain_table(**settings: Any) -> Table:
    """An empty table that leaves its width to its content."""
    return Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold", **settings)


def table(runs: dict[str, Run]) -> Table:
    shown = plain_table(caption="\n".join(NOTES), caption_justify="left")
    shown.add_column("method", no_wrap=True)
    for column in COLUMNS:
        shown.add_column(column, justify="right", no_wrap=True)
    for name, run in runs.items():
        shown.add_row(name, *(say(run) for say in COLUMNS.values()))
    return shown


def write(runs: dict[str, Run], folder: Path, command: str) -> None:
    """Save the picture and the page next to the runs."""
    draw(runs, folder / PICTURE)
    (folder / "report.html").write_text(page(runs, folder / PICTURE, command))


def check_drawing() -> None:
    """Say what is missing before anything is run."""
    if find_spec("matplotlib") is None:
        raise ValueError("the picture needs matplotlib: pip install 'thinwire[lab]'")


def draw(runs: dict[str, Run], path: Path) -> None:
    """Loss against what one rank has said so far, a line a method."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5), dpi=150)
    for name, run in runs.items():
        said = [point["payload_bytes"] for point in run.history]
        label = f"{name}: {run.metrics['test_accuracy']:.1%}, {human(run.bytes['payload'] / run.steps)} a step"
        axes.plot(said, smoothed([point["loss"] for point in run.history]), label=label, linewidth=1.8)
    first = next(iter(runs.values()))
    axes.set(xscale="log", yscale="log", xlabel="bytes said by one rank so far (payload)", ylabel="training loss")
    axes.set_title(f"{first.workload}, {first.ranks} processes, {first.steps} steps: loss against bytes")
    axes.grid(alpha=0.3, which="both", linewidth=0.4)
    axes.legend(fontsize=8, title="method: test accuracy, payload", title_fontsize=8)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def smoothed(losses: list[float], memory: float = 0.9) -> list[float]:
    """A running mean: single batches are noisy."""
    mean, weight, smooth = 0.0, 0.0, []
    for loss in losses:
        mean, weight = memory * mean + loss, memory * weight + 1
        smooth.append(mean / weight)
    return smooth


def page(runs: dict[str, Run], picture: Path, command: str) -> str:
    first = next(iter(runs.values()))
    results = html_table(
        ("method", *COLUMNS), [(name, *(say(run) for say in COLUMNS.values())) for name, run in runs.items()]
    )
    times = html_table(
        ("method", "all seconds", *PARTS),
        [(name, *(f"{run.seconds[part]:.1f}" for part in ("total", *PARTS))) for name, run in runs.items()],
    )
    notes = "".join(f'<p class="note">{html.escape(note)}</p>' for note in NOTES)
    image = base64.b64encode(picture.read_bytes()).decode()
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>thinwire: {html.escape(first.workload)}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1b1f24; }}
table {{ border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .3rem .7rem; border-bottom: 1px solid #d0d7de; text-align: right; }}
th:first-child, td:first-child, h2:last-of-type + table :is(th, td) {{ text-align: left; }}
h2:last-of-type + table td:last-child {{ font: .85em monospace; }}
img {{ max-width: 100%; }} .note {{ color: #57606a; font-size: .9em; }}
</style>
<h1>{html.escape(first.workload)}, {first.ranks} processes, {first.steps} steps</h1>
<p>Made by <code>{html.escape(command)}</code>, thinwire {html.escape(first.version)}, seed {first.seed}.</p>
{results}
{notes}
<img src="data:image/png;base64,{image}" alt="training loss against bytes, a line a method">
<h2>Where the time went</h2>
{times}
<p class="note">Compute: CPU seconds of the training thread. Encode, exchange and decode run beside it on a thread of
their own, and all ranks share the cores of one machine, so the parts do not add up to the whole.</p>
<h2>Methods</h2>
{html_table(("method", "notation"), [(name, run.method) for name, run in runs.items()])}
</html>
"""


def html_table(columns: Iterable[str], cells: Iterable[Iterable[str]]) -> str:
    def row(texts: Iterable[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts) + "</tr>"

    body = "".join(row(texts, "td") for texts in cells)
    return f"<table><thead>{row(columns, 'th')}</thead><tbody>{body}</tbody></table>"


def human(nbytes: float) -> str:
    for unit in ("B", "kB", "MB"):
        if nbytes < 1000:
            return f"{nbytes:.0f} {unit}" if unit == "B" or nbytes >= 100 else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.2f} GB"
