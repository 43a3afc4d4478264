"""The answers to what is asked on the command line: each is the lab's, as a table or as JSON."""

import argparse
import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ..lab import (
    captured,
    compare_sizes,
    contraction,
    demo,
    fit,
    links,
    making,
    report,
    scale,
    scripts,
    topology,
    workloads,
)
from ..lab.comparison import Failed
from ..lab.plan import read_file
from ..lab.runs import Run
from ..methods import METHODS


def list_methods(options: argparse.Namespace, console: Console) -> None:
    if options.json:
        listed = {m.name: {"use": m.use, "notation": repr(m.built)} for m in METHODS.values()}
        print(json.dumps(listed, indent=1))
        return
    table = Table("name", "when to use it", "notation", show_lines=True)
    table.columns[0].no_wrap = True
    table.columns[2].overflow = "fold"
    for method in METHODS.values():
        table.add_row(f"[bold]{method.name}", method.use, repr(method.built))
    console.print(table)


def list_workloads(options: argparse.Namespace, console: Console) -> None:
    if options.json:
        print(json.dumps(workloads.listed(), indent=1))
    else:
        console.print(workloads.shown())


def tell_size(options: argparse.Namespace, console: Console) -> None:
    with Console(stderr=True).status(f"measuring {options.method} on {options.model} ..."):
        compared = compare_sizes.compare(options.method, options.model, options.ranks, options.steps)
    if options.json:
        print(json.dumps(compared.as_dict(), indent=1))
    else:
        console.print(compared.shown())


def train(options: argparse.Namespace, console: Console) -> None:
    said, out, quiet = said_by(options)
    _tell(making.make([making.job_of(said, out)], _progress(options, console), quiet), out, options, console, quiet)


def compare(options: argparse.Namespace, console: Console) -> None:
    said, out, quiet = said_by(options)
    report.check_drawing()
    try:
        runs = making.make(making.jobs_of(said, out), _progress(options, console), quiet)
    except Failed:
        # Those that came to their end are worth a report, if there are any.
        with suppress(ValueError, OSError):
            report.write(out)
        raise
    _tell(runs, report.write(out), options, console, quiet)


def run_script(options: argparse.Namespace, console: Console) -> None:
    scripts.run(options.script, options.rest, options.ranks, options.transport, options.method, options.link)


def write_report(options: argparse.Namespace, console: Console) -> None:
    page = report.write(options.folder, options.target)
    _tell(report.read(options.folder), page, options, console, target=options.target)


def tell_fit(options: argparse.Namespace, console: Console) -> None:
    if options.layers < 1:
        raise ValueError(f"tables show 1 layer or more, not {options.layers}")
    form, gradients = fit.form(options.form, options.scaled), captured.read(options.folder)
    with Console(stderr=True).status("fitting ...") as status:
        study = fit.study(gradients, form, lambda said: status.update(f"fitting {said} ..."))
    page = fit.write(study, options.out or options.folder)
    if options.json:
        print(json.dumps(study.as_dict(), indent=1))
    else:
        console.print(fit.shown(study, options.layers))
        console.print(f"[bold]{page}", soft_wrap=True)


def tell_contraction(options: argparse.Namespace, console: Console) -> None:
    source = contraction.of_laws(options.size) if options.on is None else contraction.of_run(options.on)
    methods = dict.fromkeys(options.methods or contraction.FAMILY)
    with Console(stderr=True).status("measuring ...") as status:
        study = contraction.study(methods, source, options.draws, lambda said: status.update(f"measuring {said} ..."))
    page = contraction.write(study, options.out or options.on or Path())
    if options.json:
        print(json.dumps(study.as_dict(), indent=1))
    else:
        console.print(contraction.shown(study))
        console.print(f"[bold]{page}", soft_wrap=True)


def check_link(options: argparse.Namespace, console: Console) -> None:
    with Console(stderr=True).status(f"measuring {options.link} ..."):
        checked = links.check(links.Link.parse(options.link), options.seconds)
    if options.json:
        print(json.dumps(checked.as_dict(), indent=1))
    else:
        console.print(checked.shown())


def tell_scale(options: argparse.Namespace, console: Console) -> None:
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


def tell_topology(options: argparse.Namespace, console: Console) -> None:
    told = topology.tell(topology.named(options.kind), options.ranks)
    if options.svg:
        topology.write(told, options.svg)
    if options.json:
        print(json.dumps(told.as_dict(), indent=1))
    else:
        console.print(told.shown())


def run_demo(options: argparse.Namespace, console: Console) -> None:
    runs, page = demo.run(options.out, _progress(options, console), options.ranks, options.steps)
    _tell(runs, page, options, console)


def said_by(options: argparse.Namespace) -> tuple[dict[str, Any], Path, bool]:
    """What the run file and the flags say of a plan, where runs go, and whether to be quiet; flags go first."""
    flags = {name: value for name, value in vars(options).items() if name not in ("run", "json", "file", "rest")}
    said = (read_file(options.file) if "file" in options else {}) | flags
    if "steps" in flags:
        said.pop("epochs", None)
    if "epochs" in flags:
        said.pop("steps", None)
    out, quiet = said.pop("out", None), said.pop("quiet", False)
    if not isinstance(out, str | Path):
        raise ValueError(f"a run needs a folder to go to: --out, or out = ... in a run file (not {out!r})")
    if not isinstance(quiet, bool):
        raise ValueError(f"quiet is true or false, not {quiet!r}")
    return said, Path(out), quiet


def _progress(options: argparse.Namespace, console: Console) -> Console:
    return Console(stderr=True) if options.json else console


def _tell(
    runs: list[Run],
    where: Path,
    options: argparse.Namespace,
    console: Console,
    quiet: bool = False,
    target: float | None = None,
) -> None:
    if options.json:
        print(json.dumps([asdict(run) for run in runs], indent=1))
    elif not quiet:
        console.print(report.table(runs, target))
        console.print(f"[bold]{where}", soft_wrap=True)
