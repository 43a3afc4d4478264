"""The arguments of the command line.

A command's own arguments are added when it is parsed: their help texts need the lab, which imports torch.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..version import __version__
from . import commands as actions

LINK_HELP = "such as 100mbit, 1gbit, or 50mbit/10mbit for down/up"
STAR_HELP = f"{LINK_HELP}; star:100mbit: one link from rank 0 to each other rank"
METHOD_HELP = "a short name, or a notation such as 'ErrorFeedback(TopK(0.01))'"


class Command(argparse.ArgumentParser):
    """A command. Its arguments are added when it is first parsed."""

    fill: Callable[[argparse.ArgumentParser], None] | None = None

    def parse_known_args(  # type: ignore[override]  # typeshed has overloads for the namespace's type
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        fill, self.fill = self.fill, None
        if fill is not None:
            fill(self)
        return super().parse_known_args(args, namespace)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="thinwire",
        description="Communication-efficient distributed training for PyTorch, with every byte counted.",
    )
    top.add_argument("--version", action="version", version=f"thinwire {__version__}")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=Command)

    commands.add_parser("methods", help="list the methods with short names, and when to use each").fill = _fill_methods

    commands.add_parser("workloads", help="list the tasks to train").fill = _fill_workloads

    commands.add_parser(
        "size",
        help="bytes per step a method sends for a model",
        description="Measures the bytes a method sends per step for a model, on sampled gradients.",
    ).fill = _fill_size

    commands.add_parser(
        "train",
        help="train a task with a method",
        description="Trains a task on several ranks with one method, and saves the run.",
        argument_default=argparse.SUPPRESS,
    ).fill = _fill_train

    commands.add_parser(
        "compare",
        help="train a task with several methods, and report on them",
        description="Trains a task with each method and seed. An interrupted comparison resumes where it stopped.",
        argument_default=argparse.SUPPRESS,
    ).fill = _fill_compare

    commands.add_parser(
        "queue",
        help="make the runs of a queue file, at low priority, resumable",
        description="Makes the runs of a queue file one after another, at low priority. Finished runs are skipped, "
        "unfinished ones resume from their checkpoint, and the queue continues after a failed run. Ctrl-C stops it; "
        "SIGTSTP (Ctrl-Z) pauses it and its run, SIGCONT continues both.",
    ).fill = _fill_queue

    commands.add_parser(
        "run",
        help="run a single-replica script on several ranks",
        usage="thinwire run SCRIPT [--ranks N] [--transport T] [--method M] [--link LINK] [-- ARGUMENTS]",
        description="Runs a script that creates a thinwire.Replicator on N ranks: processes started by torchrun, or "
        "ranks simulated in one process, with the same results. Arguments after -- are passed to the script.",
    ).fill = _fill_run

    commands.add_parser(
        "report",
        help="write a report on the finished runs in a folder",
        description="Reports on all finished runs below a folder: prints a table, and writes report.html and "
        "comparison.png into the folder.",
    ).fill = _fill_report

    commands.add_parser(
        "fit",
        help="fit distributions to captured gradients, and compare code lengths",
        description="Fits distributions to the gradients saved by `thinwire train --capture N`, quantizes them, and "
        "measures the bits per entry of each entropy code. Prints tables, and writes a page.",
    ).fill = _fill_fit

    commands.add_parser(
        "contraction",
        help="compression error against bits per entry",
        description="Measures the relative error E|C(x) - x|^2 / |x|^2 and the payload bits per entry of each method, "
        "on gradients saved by `thinwire train --capture N` or on samples of known distributions. Prints a table, and "
        "writes a page with a plot of error against bits.",
    ).fill = _fill_contraction

    commands.add_parser("link", help="rate-limited links between ranks on this machine").fill = _fill_link

    commands.add_parser(
        "scale",
        help="bytes and time as the world size grows",
        description="Computes the bytes per node and the time per step, for a growing number of ranks.",
    ).fill = _fill_scale

    commands.add_parser(
        "topology",
        help="draw a communication graph, and show how fast gossip converges on it",
        description="Draws which ranks exchange with which, and prints the figures that determine how fast gossip "
        "reaches consensus: degree, diameter, spectral gap.",
    ).fill = _fill_topology

    commands.add_parser(
        "demo",
        help="train a small network with several methods in real processes, and compare them",
        description="Trains a small network with several methods in real processes, and reports on them.",
    ).fill = _fill_demo
    return top


def _fill_methods(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=actions.list_methods)
    _add_json(command)


def _fill_workloads(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=actions.list_workloads)
    _add_json(command)


def _fill_size(command: argparse.ArgumentParser) -> None:
    from ..lab.tasks import models

    command.add_argument("method", metavar="METHOD", help=METHOD_HELP)
    command.add_argument("--model", required=True, metavar="NAME", help=f"model: {', '.join(models.MODELS)}")
    command.add_argument("--ranks", type=int, default=4, metavar="N", help="number of ranks (default: 4)")
    command.add_argument("--steps", type=int, default=2, metavar="N", help="number of steps to measure (default: 2)")
    command.set_defaults(run=actions.print_size)
    _add_json(command)


def _fill_train(command: argparse.ArgumentParser) -> None:
    _add_plan(command)
    command.add_argument("--method", metavar="M", help=METHOD_HELP)
    command.add_argument("--capture", type=int, metavar="N", help="save rank 0's gradients at N steps of the run")
    command.set_defaults(run=actions.train)
    _add_json(command)


def _fill_compare(command: argparse.ArgumentParser) -> None:
    _add_plan(command)
    command.add_argument("--methods", nargs="+", metavar="M", help=METHOD_HELP)
    command.add_argument("--seeds", type=int, metavar="N", help="number of seeds, from --seed on (default: 1)")
    command.add_argument("--links", nargs="+", metavar="LINK", help="compare on each of these links")
    command.add_argument(
        "--tune",
        nargs="+",
        type=float,
        metavar="X",
        help="learning rate factors to try; each method uses its best by validation (needs --budget plateau)",
    )
    command.set_defaults(run=actions.compare)
    _add_json(command)


def _fill_queue(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", type=Path, metavar="FILE", help="TOML: [[plans]] with workload, methods, seeds, ...")
    command.add_argument("--status", action="store_true", help="show finished, running and pending runs, then exit")
    command.add_argument("--tags", nargs="+", default=[], metavar="T", help="only plans with one of these tags")
    command.add_argument(
        "--quiet-machine", action="store_true", help="also make runs that need an idle machine: those over real links"
    )
    command.add_argument("--retry", action="store_true", help="retry failed runs")
    command.set_defaults(run=actions.run_queue)
    _add_json(command)


def _fill_run(command: argparse.ArgumentParser) -> None:
    from ..lab.runner.plan import TRANSPORTS

    command.add_argument("script", type=Path, metavar="SCRIPT", help="such as train.py")
    command.add_argument("--ranks", type=int, default=4, metavar="N", help="number of ranks (default: 4)")
    command.add_argument(
        "--transport", default=TRANSPORTS[0], metavar="T", help=f"{' or '.join(TRANSPORTS)} (default: {TRANSPORTS[0]})"
    )
    command.add_argument("--method", metavar="M", help=f"instead of the script's: {METHOD_HELP}")
    command.add_argument("--link", metavar="LINK", help=f"between processes, {STAR_HELP}")
    command.set_defaults(run=actions.run_script)


def _fill_report(command: argparse.ArgumentParser) -> None:
    command.add_argument("folder", type=Path, metavar="DIR", help="folder of the runs")
    command.add_argument(
        "--target", type=float, metavar="X", help="target value of the metric (default: 99 %% of dense's)"
    )
    command.add_argument(
        "--link",
        nargs="+",
        action="extend",
        default=[],
        metavar="LINK",
        help="for runs without a link, show their modeled time on these links",
    )
    command.set_defaults(run=actions.write_report)
    _add_json(command)


def _fill_fit(command: argparse.ArgumentParser) -> None:
    from ..lab import fit

    command.add_argument("folder", type=Path, metavar="DIR", help="folder of the run")
    command.add_argument(
        "--form", default=fit.FORMS[0], metavar="F", help=f"quantizer: {', '.join(fit.FORMS)} (default: {fit.FORMS[0]})"
    )
    command.add_argument(
        "--scaled", action="store_true", help="scale 8-bit floats per layer (the other formats always are)"
    )
    command.add_argument(
        "--layers", type=int, default=8, metavar="N", help="number of layers in the tables, largest first (default: 8)"
    )
    command.add_argument("--out", type=Path, metavar="DIR", help="folder for the page (default: the run's folder)")
    command.set_defaults(run=actions.print_fit)
    _add_json(command)


def _fill_contraction(command: argparse.ArgumentParser) -> None:
    from ..lab import contraction

    command.add_argument(
        "methods", nargs="*", metavar="METHOD", help=f"{METHOD_HELP} (default: a set of {len(contraction.FAMILY)})"
    )
    command.add_argument("--on", type=Path, metavar="DIR", help="folder of the run whose captured gradients are used")
    command.add_argument(
        "--size", type=int, default=10**5, metavar="N", help="entries per tensor without --on (default: 100000)"
    )
    command.add_argument(
        "--draws", type=int, default=10, metavar="N", help="samples per stochastic method (default: 10)"
    )
    command.add_argument("--out", type=Path, metavar="DIR", help="folder for the page (default: the run's folder)")
    command.set_defaults(run=actions.print_contraction)
    _add_json(command)


def _fill_link(command: argparse.ArgumentParser) -> None:
    subcommands = command.add_subparsers(title="actions", required=True, metavar="ACTION")
    action = subcommands.add_parser("check", help="measure the real rate of a link")
    action.add_argument("link", metavar="LINK", help=LINK_HELP)
    action.add_argument(
        "--seconds", type=float, default=5.0, metavar="S", help="duration of the measurement (default: 5)"
    )
    action.add_argument("--json", action="store_true", help="print JSON instead of tables")
    action.set_defaults(run=actions.check_link)


def _fill_scale(command: argparse.ArgumentParser) -> None:
    from ..lab.tasks import models

    command.add_argument("method", metavar="METHOD", help=METHOD_HELP)
    command.add_argument("--model", required=True, metavar="NAME", help=f"model: {', '.join(models.MODELS)}")
    command.add_argument("--ranks", default="2..1024", metavar="A..B", help="powers of two, or a list such as 2,6,10")
    command.add_argument("--link", default="1gbit", metavar="LINK", help=f"{LINK_HELP} (default: 1gbit)")
    command.add_argument(
        "--latency-ms", type=float, default=0.0, metavar="MS", help="latency of an exchange (default: 0)"
    )
    command.add_argument(
        "--compute-ms", type=float, default=0.0, metavar="MS", help="compute time of a step (default: 0)"
    )
    command.add_argument("--out", type=Path, metavar="FILE", help="write a plot: PNG, SVG or PDF")
    command.set_defaults(run=actions.print_scale)
    _add_json(command)


def _fill_topology(command: argparse.ArgumentParser) -> None:
    from ..lab import topology

    command.add_argument(
        "kind", metavar="KIND", help=f"{', '.join(topology.KINDS)}, or a notation such as 'Edges(((0, 1), (1, 2)))'"
    )
    command.add_argument("--ranks", type=int, required=True, metavar="N", help="number of ranks")
    command.add_argument("--svg", type=Path, metavar="FILE", help="write a picture of the graph")
    command.set_defaults(run=actions.print_topology)
    _add_json(command)


def _fill_demo(command: argparse.ArgumentParser) -> None:
    from ..lab.runner import demo

    command.add_argument(
        "--out", type=Path, default=Path("runs/demo"), metavar="DIR", help="folder for the runs (default: runs/demo)"
    )
    command.add_argument(
        "--ranks", type=int, default=demo.RANKS, metavar="N", help=f"number of ranks (default: {demo.RANKS})"
    )
    command.add_argument(
        "--steps", type=int, default=demo.STEPS, metavar="N", help=f"number of steps (default: {demo.STEPS})"
    )
    command.set_defaults(run=actions.run_demo)
    _add_json(command)


def _add_json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", default=False, help="print JSON instead of tables")


def _add_plan(command: argparse.ArgumentParser) -> None:
    """Add the flags for a plan's settings. A missing flag takes its value from the run file, or the plan's default."""
    from ..lab.runner.plan import BUDGETS, TRANSPORTS, Plan
    from ..lab.runner.run_folder import MINUTES

    default = {field.name: field.default for field in fields(Plan)}
    command.add_argument("--file", type=Path, metavar="TOML", help="a run file with any of these settings")
    command.add_argument("--out", type=Path, metavar="DIR", help="folder for the runs")
    command.add_argument("--workload", metavar="W", help="a name (`thinwire workloads`), or path/to/file.py:Name")
    command.add_argument("--ranks", type=int, metavar="N", help=f"number of ranks (default: {default['ranks']})")
    command.add_argument(
        "--transport", metavar="T", help=f"{' or '.join(TRANSPORTS)} (default: {default['transport']})"
    )
    command.add_argument("--link", metavar="LINK", help=f"between the ranks, {STAR_HELP}")
    command.add_argument(
        "--modeled", action="store_true", help="compute the time on the link from the bytes, without creating it"
    )
    command.add_argument(
        "--budget", metavar="B", help=f"how long to train: {', '.join(BUDGETS)} (default: {default['budget']})"
    )
    length = command.add_mutually_exclusive_group()
    length.add_argument("--steps", type=int, metavar="N", help="number of steps, instead of the budget's")
    length.add_argument("--epochs", type=float, metavar="X", help="number of epochs, instead of the budget's")
    batch = command.add_mutually_exclusive_group()
    batch.add_argument("--batch", type=int, metavar="N", help="global batch size, instead of the workload's")
    batch.add_argument("--batch-per-rank", type=int, metavar="N", help="batch size of each rank")
    command.add_argument("--accumulate", type=int, metavar="N", help="batches to accumulate before each exchange")
    command.add_argument(
        "--alone", action="store_true", help="the baseline: one rank with its batch, the same number of steps"
    )
    command.add_argument(
        "--lr-scale", type=float, metavar="X", help="factor of the workload's learning rate (default: 1)"
    )
    command.add_argument(
        "--warmup", type=float, metavar="X", help="fraction of the steps with linear learning rate warm-up"
    )
    command.add_argument(
        "--shards",
        metavar="S",
        help="how ranks share the data: iid, or dirichlet:ALPHA for skewed labels (default: iid)",
    )
    command.add_argument(
        "--straggler", metavar="RANK:FACTOR", help="slow one rank down: 1:3 makes rank 1 three times slower"
    )
    command.add_argument("--seed", type=int, metavar="S", help=f"random seed (default: {default['seed']})")
    command.add_argument(
        "--threads", type=int, metavar="N", help=f"threads of each rank (default: {default['threads']})"
    )
    command.add_argument(
        "--evaluations", type=int, metavar="N", help="evaluations over the run (default: the budget's)"
    )
    command.add_argument(
        "--data", metavar="DIR", help="folder of the datasets (default: the environment variable THINWIRE_DATA)"
    )
    command.add_argument(
        "--checkpoint-minutes",
        type=float,
        metavar="X",
        help=f"minutes between checkpoints, from which an interrupted run resumes (default: {MINUTES:g}; 0: none)",
    )
    command.add_argument("--quiet", action="store_true", help="show no progress")
