"""The command line: arguments in, the lab's answers out."""

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from .lab import compare_sizes, demo, links, making, models, report, scale, workloads
from .lab.comparison import Failed
from .lab.plan import BUDGETS, TRANSPORTS, Plan, read_file
from .lab.processes import RanksError
from .lab.runs import Run
from .methods import METHODS
from .version import __version__

LINK_HELP = "such as 100mbit, 1gbit, or 50mbit/10mbit for down/up"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        options.run(options, Console())
    except (ValueError, RanksError, Failed) as error:
        print(f"thinwire: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # such as a full disk
        where = f"{error.filename}: " if error.filename else ""
        print(f"thinwire: {where}{error.strerror or error}; runs that were finished are kept", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("thinwire: interrupted; runs that were finished are kept", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="thinwire", description="Say less between replicas, know every byte.")
    parser.add_argument("--version", action="version", version=f"thinwire {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    method_help = "a short name, or a notation such as 'Feedback(TopK(0.01))'"

    command = commands.add_parser("methods", help="the methods with short names, and when to use each")
    command.set_defaults(run=_methods)

    command = commands.add_parser("workloads", help="the tasks to train")
    command.set_defaults(run=_workloads)

    command = commands.add_parser(
        "size",
        help="how many bytes a method says about a model",
        description="Measures what a method says per step, by running it on gradients of a model from random data.",
    )
    command.add_argument("method", metavar="METHOD", help=method_help)
    command.add_argument("--model", required=True, metavar="NAME", help=", ".join(models.MODELS))
    command.add_argument("--ranks", type=int, default=4, metavar="N", help="how many (default: 4)")
    command.add_argument("--steps", type=int, default=2, metavar="N", help="to measure over (default: 2)")
    command.set_defaults(run=_size)

    command = commands.add_parser(
        "train",
        help="train a task with a method",
        description="Trains a task with a method between the ranks, and saves the run.",
        argument_default=argparse.SUPPRESS,
    )
    _add_plan(command)
    command.add_argument("--method", metavar="M", help=method_help)
    command.set_defaults(run=_train)

    command = commands.add_parser(
        "compare",
        help="train a task with several methods, and report on them",
        description="Trains a task with each method and seed. A comparison that was interrupted goes on where it was.",
        argument_default=argparse.SUPPRESS,
    )
    _add_plan(command)
    command.add_argument("--methods", nargs="+", metavar="M", help=method_help)
    command.add_argument("--seeds", type=int, metavar="N", help="how many, from --seed on (default: 1)")
    command.set_defaults(run=_compare)

    command = commands.add_parser("report", help="a page on the runs in a folder")
    command.add_argument("folder", type=Path, metavar="DIR")
    command.add_argument("--target", type=float, metavar="X", help="of the metric (default: 99 %% of dense's)")
    command.set_defaults(run=_report)

    command = commands.add_parser("link", help="links of a given rate between ranks on this machine")
    actions = command.add_subparsers(title="actions", required=True, metavar="ACTION")
    action = actions.add_parser("check", help="measure what a link really carries")
    action.add_argument("link", metavar="LINK", help=LINK_HELP)
    action.add_argument("--seconds", type=float, default=5.0, metavar="S", help="to measure for (default: 5)")
    action.add_argument("--json", action="store_true", help="print JSON instead of tables")
    action.set_defaults(run=_link_check)

    command = commands.add_parser(
        "scale",
        help="bytes and time as the world grows",
        description="What a node carries and how long that takes, for growing numbers of ranks.",
    )
    command.add_argument("method", metavar="METHOD", help=method_help)
    command.add_argument("--model", required=True, metavar="NAME", help=", ".join(models.MODELS))
    command.add_argument("--ranks", default="2..1024", metavar="A..B", help="powers of two, or a list such as 2,6,10")
    command.add_argument("--link", default="1gbit", metavar="LINK", help=f"{LINK_HELP} (default: 1gbit)")
    command.add_argument("--latency-ms", type=float, default=0.0, metavar="MS", help="of an exchange (default: 0)")
    command.add_argument("--compute-ms", type=float, default=0.0, metavar="MS", help="of a step (default: 0)")
    command.add_argument("--out", type=Path, metavar="FILE", help="a picture of it, PNG, SVG or PDF")
    command.set_defaults(run=_scale)

    command = commands.add_parser(
        "demo", help="train a small network with several methods in real processes, and compare them"
    )
    command.add_argument("--out", type=Path, default=Path("runs/demo"), metavar="DIR", help="default: runs/demo")
    command.add_argument("--ranks", type=int, default=demo.RANKS, metavar="N", help=f"default: {demo.RANKS}")
    command.add_argument("--steps", type=int, default=demo.STEPS, metavar="N", help=f"default: {demo.STEPS}")
    command.set_defaults(run=_demo)

    for name, command in commands.choices.items():
        if name != "link":
            command.add_argument("--json", action="store_true", default=False, help="print JSON instead of tables")
    return parser


def _add_plan(command: argparse.ArgumentParser) -> None:
    """The flags for what a plan holds; what is not given comes from the run file, or from the plan's defaults."""
    default = {field.name: field.default for field in fields(Plan)}
    command.add_argument("--file", type=Path, metavar="TOML", help="a run file: any of these settings, by their names")
    command.add_argument("--out", type=Path, metavar="DIR", help="where the runs go")
    command.add_argument("--workload", metavar="W", help="a name (`thinwire workloads`), or path/to/file.py:Name")
    command.add_argument("--ranks", type=int, metavar="N", help=f"how many (default: {default['ranks']})")
    command.add_argument(
        "--transport", metavar="T", help=f"{' or '.join(TRANSPORTS)} (default: {default['transport']})"
    )
    command.add_argument("--link", metavar="LINK", help=f"between the ranks, {LINK_HELP}")
    command.add_argument("--modelled", action="store_true", help="compute the link's time from bytes, make no link")
    command.add_argument("--budget", metavar="B", help=f"{' or '.join(BUDGETS)} (default: {default['budget']})")
    length = command.add_mutually_exclusive_group()
    length.add_argument("--steps", type=int, metavar="N", help="instead of the budget's")
    length.add_argument("--epochs", type=float, metavar="X", help="instead of the budget's")
    command.add_argument("--batch", type=int, metavar="N", help="examples a step over all ranks, not the workload's")
    command.add_argument("--shards", metavar="S", help="iid, or dirichlet:ALPHA for skewed labels (default: iid)")
    command.add_argument("--seed", type=int, metavar="S", help=f"default: {default['seed']}")
    command.add_argument("--threads", type=int, metavar="N", help=f"of each rank (default: {default['threads']})")
    command.add_argument("--evaluations", type=int, metavar="N", help=f"default: {default['evaluations']}")
    command.add_argument("--data", metavar="DIR", help="the data sets' folder (default: the variable THINWIRE_DATA)")
    command.add_argument("--quiet", action="store_true", help="show no progress")


def _methods(options: argparse.Namespace, console: Console) -> None:
    if options.json:
        listed = {m.name: {"use": m.use, "notation": repr(m.reducer)} for m in METHODS.values()}
        print(json.dumps(listed, indent=1))
        return
    table = Table("name", "when to use it", "notation", show_lines=True)
    table.columns[0].no_wrap = True
    table.columns[2].overflow = "fold"
    for method in METHODS.values():
        table.add_row(f"[bold]{method.name}", method.use, repr(method.reducer))
    console.print(table)


def _workloads(options: argparse.Namespace, console: Console) -> None:
    if options.json:
        print(json.dumps(workloads.listed(), indent=1))
    else:
        console.print(workloads.shown())


def _size(options: argparse.Namespace, console: Console) -> None:
    with Console(stderr=True).status(f"measuring {options.method} on {options.model} ..."):
        compared = compare_sizes.compare(options.method, options.model, options.ranks, options.steps)
    if options.json:
        print(json.dumps(compared.as_dict(), indent=1))
    else:
        console.print(compared.shown())


def _train(options: argparse.Namespace, console: Console) -> None:
    said, out, quiet = _said(options)
    _tell(making.make([making.job_of(said, out)], _progress(options, console), quiet), out, options, console, quiet)


def _compare(options: argparse.Namespace, console: Console) -> None:
    said, out, quiet = _said(options)
    report.check_drawing()
    try:
        runs = making.make(making.jobs_of(said, out), _progress(options, console), quiet)
    except Failed:
        # Those that came to their end are worth a report, if there are any.
        with suppress(ValueError, OSError):
            report.write(out)
        raise
    _tell(runs, report.write(out), options, console, quiet)


def _report(options: argparse.Namespace, console: Console) -> None:
    page = report.write(options.folder, options.target)
    _tell(report.read(options.folder), page, options, console, target=options.target)


def _link_check(options: argparse.Namespace, console: Console) -> None:
    with Console(stderr=True).status(f"measuring {options.link} ..."):
        checked = links.check(links.Link.parse(options.link), options.seconds)
    if options.json:
        print(json.dumps(checked.as_dict(), indent=1))
    else:
        console.print(checked.shown())


def _scale(options: argparse.Namespace, console: Console) -> None:
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


def _demo(options: argparse.Namespace, console: Console) -> None:
    runs, page = demo.run(options.out, _progress(options, console), options.ranks, options.steps)
    _tell(runs, page, options, console)


def _said(options: argparse.Namespace) -> tuple[dict[str, Any], Path, bool]:
    """What the run file and the flags say of a plan, where runs go, and whether to be quiet; flags go first."""
    flags = {name: value for name, value in vars(options).items() if name not in ("run", "json", "file")}
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
