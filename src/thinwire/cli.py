"""The command line: arguments in, the lab's answers out."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from .lab import compare_sizes, demo, models, report
from .methods import METHODS
from .version import __version__


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        options.run(options, Console())
    except (ValueError, demo.DemoError) as error:
        print(f"thinwire: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="thinwire", description="Say less between replicas, know every byte.")
    parser.add_argument("--version", action="version", version=f"thinwire {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    command = commands.add_parser("methods", help="the methods with short names, and when to use each")
    command.set_defaults(run=_methods)

    command = commands.add_parser(
        "size",
        help="how many bytes a method says about a model",
        description="Measures what a method says per step, by running it on gradients of a model from random data.",
    )
    command.add_argument("method", metavar="METHOD", help="a short name, or a notation such as 'Feedback(TopK(0.01))'")
    command.add_argument("--model", required=True, metavar="NAME", help=", ".join(models.MODELS))
    command.add_argument("--ranks", type=int, default=4, metavar="N", help="how many (default: 4)")
    command.add_argument("--steps", type=int, default=2, metavar="N", help="to measure over (default: 2)")
    command.set_defaults(run=_size)

    command = commands.add_parser(
        "demo", help="train a small network with several methods in real processes, and compare them"
    )
    command.add_argument("--out", type=Path, default=Path("runs/demo"), metavar="DIR", help="default: runs/demo")
    command.add_argument("--ranks", type=int, default=demo.RANKS, metavar="N", help=f"default: {demo.RANKS}")
    command.add_argument("--steps", type=int, default=demo.STEPS, metavar="N", help=f"default: {demo.STEPS}")
    command.set_defaults(run=_demo)

    for command in commands.choices.values():
        command.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return parser


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


def _size(options: argparse.Namespace, console: Console) -> None:
    with Console(stderr=True).status(f"measuring {options.method} on {options.model} ..."):
        compared = compare_sizes.compare(options.method, options.model, options.ranks, options.steps)
    if options.json:
        print(json.dumps(compared.as_dict(), indent=1))
    else:
        console.print(compared.shown())


def _demo(options: argparse.Namespace, console: Console) -> None:
    runs = demo.run(options.out, Console(stderr=True) if options.json else console, options.ranks, options.steps)
    if options.json:
        print(json.dumps({name: asdict(run) for name, run in runs.items()}, indent=1))
        return
    console.print(report.table(runs))
    console.print(f"Runs, picture and page: [bold]{options.out}/report.html")
