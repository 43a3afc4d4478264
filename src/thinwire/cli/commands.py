"""The commands: each calls the lab and prints its result, as a table or as JSON."""

import argparse
import json
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.table import Table

from ..short_names import METHODS

if TYPE_CHECKING:
    from ..lab.recording.runs import Run


def list_methods(options: argparse.Namespace, console: Console) -> None:
    if options.json:
        listed = {m.name: {"use": m.use, "notation": m.notation} for m in METHODS.values()}
        print(json.dumps(listed, indent=1))
        return
    table = Table("name", "when to use it", "notation", show_lines=True)
    table.columns[0].no_wrap = True
    table.columns[2].overflow = "fold"
    for method in METHODS.values():
        table.add_row(f"[bold]{method.name}", method.use, method.notation)
    console.print(table)


def list_workloads(options: argparse.Namespace, console: Console) -> None:
    from ..lab.tasks import workloads

    if options.json:
        print(json.dumps(workloads.listed(), indent=1))
    else:
        console.print(workloads.shown())


def print_size(options: argparse.Namespace, console: Console) -> None:
    from ..lab.sizing import compare_sizes

    with Console(stderr=True).status(f"measuring {options.method} on {options.model} ..."):
        compared = compare_sizes.compare(options.method, options.model, options.ranks, options.steps)
    if options.json:
        print(json.dumps(compared.as_dict(), indent=1))
    else:
        console.print(compared.shown())


def train(options: argparse.Namespace, console: Console) -> None:
    from ..lab.runner import jobs

    request = request_of(options)
    job = jobs.job_of(request.settings, request.out, request.minutes)
    runs = jobs.make([job], _progress(options, console), request.quiet)
    _print_runs(runs, request.out, options, console, request.quiet)


def compare(options: argparse.Namespace, console: Console) -> None:
    from ..lab import report
    from ..lab.runner import jobs
    from ..lab.runner.comparison import Failed
    from ..lab.runner.study import cells_of

    request = request_of(options)
    report.check_drawing()
    try:
        cells = cells_of(request.settings, request.out, request.minutes)
        runs = jobs.make_study(cells, _progress(options, console), request.quiet)
    except Failed:
        # Report on the runs that finished, if there are any.
        with suppress(ValueError, OSError):
            report.write(request.out)
        raise
    _print_runs(runs, report.write(request.out), options, console, request.quiet)


def run_queue(options: argparse.Namespace, console: Console) -> None:
    from ..lab import queue

    selected = queue.read(options.file).tagged(options.tags)
    if options.status:
        status = queue.status(selected, str(options.file))
        if options.json:
            print(json.dumps(status.as_dict(), indent=1))
        else:
            console.print(status.shown())
        return

    def report(text: str) -> None:
        console.print(f"{datetime.now():%H:%M:%S}  {text}", markup=False, highlight=False, soft_wrap=True)

    queue.run(selected, report, options.quiet_machine, options.retry)


def run_script(options: argparse.Namespace, console: Console) -> None:
    from ..lab.runner import scripts

    scripts.run(
        options.script, options.script_arguments, options.ranks, options.transport, options.method, options.link
    )


def write_report(options: argparse.Namespace, console: Console) -> None:
    from ..lab import links, report

    modeled = [links.Link.parse(text) for text in options.link]
    page = report.write(options.folder, options.target, modeled)
    runs = report.on_links(report.read(options.folder), modeled)
    _print_runs(runs, page, options, console, target=options.target)


def print_fit(options: argparse.Namespace, console: Console) -> None:
    from ..lab import fit
    from ..lab.recording import captured

    if options.layers < 1:
        raise ValueError(f"--layers must be 1 or more, not {options.layers}")
    form, gradients = fit.form(options.form, options.scaled), captured.read(options.folder)
    with Console(stderr=True).status("fitting ...") as status:
        study = fit.study(gradients, form, lambda name: status.update(f"fitting {name} ..."))
    page = fit.write(study, options.out or options.folder)
    if options.json:
        print(json.dumps(study.as_dict(), indent=1))
    else:
        console.print(fit.shown(study, options.layers))
        console.print(f"[bold]{page}", soft_wrap=True)


def print_contraction(options: argparse.Namespace, console: Console) -> None:
    from ..lab import contraction

    source = contraction.of_distributions(options.size) if options.on is None else contraction.of_run(options.on)
    methods = dict.fromkeys(options.methods or contraction.FAMILY)
    with Console(stderr=True).status("measuring ...") as status:
        study = contraction.study(methods, source, options.draws, lambda name: status.update(f"measuring {name} ..."))
    page = contraction.write(study, options.out or options.on or Path())
    if options.json:
        print(json.dumps(study.as_dict(), indent=1))
    else:
        console.print(contraction.shown(study))
        console.print(f"[bold]{page}", soft_wrap=True)


def check_link(options: argparse.Namespace, console: Console) -> None:
    from ..lab import links

    with Console(stderr=True).status(f"measuring {options.link} ..."):
        checked = links.check(links.Link.parse(options.link), options.seconds)
    if options.json:
        print(json.dumps(checked.as_dict(), indent=1))
    else:
        console.print(checked.shown())


def print_scale(options: argparse.Namespace, console: Console) -> None:
    from ..lab.sizing import scale

    with Console(stderr=True).status(f"measuring {options.method} on {options.model} ..."):
        scaled = scale.scale(
            options.method, options.model, options.ranks, options.link, options.latency_ms, options.compute_ms
        )
    if options.out:
        scaled.draw(options.out)
    if options.json:
        print(json.dumps(scaled.as_dict(), indent=1))
    else:
        console.print(scaled.shown())


def print_topology(options: argparse.Namespace, console: Console) -> None:
    from ..lab import topology

    graph = topology.describe(topology.named(options.kind), options.ranks)
    if options.svg:
        topology.write(graph, options.svg)
    if options.json:
        print(json.dumps(graph.as_dict(), indent=1))
    else:
        console.print(graph.shown())


def run_demo(options: argparse.Namespace, console: Console) -> None:
    from ..lab.runner import demo

    runs, page = demo.run(options.out, _progress(options, console), options.ranks, options.steps)
    _print_runs(runs, page, options, console)


class Request(NamedTuple):
    """The settings of the run file and the flags. Flags override the file."""

    settings: dict[str, Any]  # of a plan or of a comparison
    out: Path
    minutes: float  # between checkpoints
    quiet: bool


def request_of(options: argparse.Namespace) -> Request:
    from ..lab.runner.plan import read_file
    from ..lab.runner.run_folder import MINUTES, check_minutes

    flags = {
        name: value for name, value in vars(options).items() if name not in ("run", "json", "file", "script_arguments")
    }
    settings = (read_file(options.file) if "file" in options else {}) | flags
    for alternatives in ({"steps", "epochs"}, {"batch", "batch_per_rank"}):  # a flag replaces the other one in the file
        if alternatives & flags.keys():
            for name in alternatives - flags.keys():
                settings.pop(name, None)
    out, quiet = settings.pop("out", None), settings.pop("quiet", False)
    minutes = settings.pop("checkpoint_minutes", MINUTES)
    if not isinstance(out, str | Path):
        raise ValueError(f"a run needs an output folder: --out, or out = ... in a run file (not {out!r})")
    if not isinstance(quiet, bool):
        raise ValueError(f"quiet must be true or false, not {quiet!r}")
    check_minutes(minutes)
    return Request(settings, Path(out), minutes, quiet)


def _progress(options: argparse.Namespace, console: Console) -> Console:
    return Console(stderr=True) if options.json else console


def _print_runs(
    runs: "list[Run]",
    path: Path,
    options: argparse.Namespace,
    console: Console,
    quiet: bool = False,
    target: float | None = None,
) -> None:
    from ..lab import report

    if options.json:
        print(json.dumps([asdict(run) for run in runs], indent=1))
    elif not quiet:
        console.print(report.table(runs, target))
        console.print(f"[bold]{path}", soft_wrap=True)
