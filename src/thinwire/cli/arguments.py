"""The arguments of the command line.

A command's own arguments are added once it is chosen: their help texts need the lab, which imports torch.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..version import __version__
from . import commands as answers

LINK_HELP = "such as 100mbit, 1gbit, or 50mbit/10mbit for down/up"
STAR_HELP = f"{LINK_HELP}; star:100mbit: one from rank 0 to each other"
METHOD_HELP = "a short name, or a notation such as 'Feedback(TopK(0.01))'"


class Command(argparse.ArgumentParser):
    """A command, whose arguments are added when it is first parsed."""

    fill: Callable[[argparse.ArgumentParser], None] | None = None

    def parse_known_args(  # type: ignore[override]  # typeshed has overloads for the namespace's type
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        fill, self.fill = self.fill, None
        if fill is not None:
            fill(self)
        return super().parse_known_args(args, namespace)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="thinwire", description="Say less between replicas, know every byte.")
    top.add_argument("--version", action="version", version=f"thinwire {__version__}")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=Command)

    commands.add_parser("methods", help="the methods with short names, and when to use each").fill = _fill_methods

    commands.add_parser("workloads", help="the tasks to train").fill = _fill_workloads

    commands.add_parser(
        "size",
        help="how many bytes a method says about a model",
        description="Measures what a method says per step, by running it on gradients of a model from random data.",
    ).fill = _fill_size

    commands.add_parser(
        "train",
        help="train a task with a method",
        description="Trains a task with a method between the ranks, and saves the run.",
        argument_default=argparse.SUPPRESS,
    ).fill = _fill_train

    commands.add_parser(
        "compare",
        help="train a task with several methods, and report on them",
        description="Trains a task with each method and seed. A comparison that was interrupted goes on where it was.",
        argument_default=argparse.SUPPRESS,
    ).fill = _fill_compare

    commands.add_parser(
        "queue",
        help="make many runs from one file, at low priority, over many sittings",
        description="Makes the runs of a queue file one after the other, at low priority. Finished runs are skipped, "
        "unfinished ones resume from their checkpoint, and the queue goes on after a run that fails. Ctrl-C ends it; "
        "SIGTSTP (Ctrl-Z) pauses it and its run, SIGCONT continues both.",
    ).fill = _fill_queue

    commands.add_parser(
        "run",
        help="run a script of one replica as many",
        usage="thinwire run SCRIPT [--ranks N] [--transport T] [--method M] [--link LINK] [-- ARGUMENTS]",
        description="Runs a script that makes a thinwire.Replicator as so many ranks: processes that torchrun starts, "
        "or simulated ones, in turns in one process, with the same results. What follows -- is for the script.",
    ).fill = _fill_run

    commands.add_parser("report", help="a page on the runs in a folder").fill = _fill_report

    commands.add_parser(
        "fit",
        help="what law captured gradients follow, and the bits that codes take under it",
        description="Fits laws to the gradients that `thinwire train --capture N` wrote down, and codes what a "
        "quantizer makes of them. Prints tables, and writes a page.",
    ).fill = _fill_fit

    commands.add_parser(
        "contraction",
        help="what methods lose of a gradient, and the bits that they take",
        description="Measures E|C(x) - x|^2 / |x|^2 and the bits of an entry, as sent, of every method: on gradients "
        "that `thinwire train --capture N` wrote down, or on numbers that follow known laws. Prints a table, and "
        "writes a page with the plot of error against bits.",
    ).fill = _fill_contraction

    commands.add_parser("link", help="links of a given rate between ranks on this machine").fill = _fill_link

    commands.add_parser(
        "scale",
        help="bytes and time as the world grows",
        description="What a node carries and how long that takes, for growing numbers of ranks.",
    ).fill = _fill_scale

    commands.add_parser(
        "topology",
        help="what a graph between ranks looks like, and how fast differences shrink on it",
        description="RandomState who speaks with whom, and tells the figures that say how fast ranks come to agree.",
    ).fill = _fill_topology

    commands.add_parser(
        "demo", help="train a small network with several methods in real processes, and compare them"
    ).fill = _fill_demo
    return top


def _fill_methods(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=answers.list_methods)
    _add_json(command)


def _fill_workloads(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=answers.list_workloads)
    _add_json(command)


def _fill_size(command: argparse.ArgumentParser) -> None:
    from ..lab.tasks import models

    command.add_argument("method", metavar="METHOD", help=METHOD_HELP)
    command.add_argument("--model", required=True, metavar="NAME", help=", ".join(models.MODELS))
    command.add_argument("--ranks", type=int, default=4, metavar="N", help="how many (default: 4)")
    command.add_argument("--steps", type=int, default=2, metavar="N", help="to measure over (default: 2)")
    command.set_defaults(run=answers.tell_size)
    _add_json(command)


def _fill_train(command: argparse.ArgumentParser) -> None:
    _add_plan(command)
    command.add_argument("--method", metavar="M", help=METHOD_HELP)
    command.add_argument("--capture", type=int, metavar="N", help="write rank 0's gradients down at so many steps")
    command.set_defaults(run=answers.train)
    _add_json(command)


def _fill_compare(command: argparse.ArgumentParser) -> None:
    _add_plan(command)
    command.add_argument("--methods", nargs="+", metavar="M", help=METHOD_HELP)
    command.add_argument("--seeds", type=int, metavar="N", help="how many, from --seed on (default: 1)")
    command.add_argument("--links", nargs="+", metavar="LINK", help="compare on each of these links")
    command.add_argument(
        "--tune",
        nargs="+",
        type=float,
        metavar="X",
        help="factors of the learning rate: the best of each method by validation is used (needs --budget plateau)",
    )
    command.set_defaults(run=answers.compare)
    _add_json(command)


def _fill_queue(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", type=Path, metavar="FILE", help="TOML: [[plans]] with workload, methods, seeds, ...")
    command.add_argument("--status", action="store_true", help="show what is done, running and left, and stop")
    command.add_argument("--tags", nargs="+", default=[], metavar="T", help="only plans with one of these tags")
    command.add_argument(
        "--quiet-machine", action="store_true", help="also make runs that need a quiet machine: real links"
    )
    command.add_argument("--retry", action="store_true", help="try runs again that failed before")
    command.set_defaults(run=answers.run_queue)
    _add_json(command)


def _fill_run(command: argparse.ArgumentParser) -> None:
    from ..lab.runner.plan import TRANSPORTS

    command.add_argument("script", type=Path, metavar="SCRIPT", help="such as train.py")
    command.add_argument("--ranks", type=int, default=4, metavar="N", help="how many (default: 4)")
    command.add_argument(
        "--transport", default=TRANSPORTS[0], metavar="T", help=f"{' or '.join(TRANSPORTS)} (default: {TRANSPORTS[0]})"
    )
    command.add_argument("--method", metavar="M", help=f"instead of the script's: {METHOD_HELP}")
    command.add_argument("--link", metavar="LINK", help=f"between processes, {STAR_HELP}")
    command.set_defaults(run=answers.run_script)


def _fill_report(command: argparse.ArgumentParser) -> None:
    command.add_argument("folder", type=Path, metavar="DIR")
    command.add_argument("--target", type=float, metavar="X", help="of the metric (default: 99 %% of dense's)")
    command.add_argument(
        "--link",
        nargs="+",
        action="extend",
        default=[],
        metavar="LINK",
        help="show runs without a link with their modeled time on these links",
    )
    command.set_defaults(run=answers.write_report)
    _add_json(command)


def _fill_fit(command: argparse.ArgumentParser) -> None:
    from ..lab import fit

    command.add_argument("folder", type=Path, metavar="DIR", help="of the run")
    command.add_argument(
        "--form", default=fit.FORMS[0], metavar="F", help=f"{', '.join(fit.FORMS)} (default: {fit.FORMS[0]})"
    )
    command.add_argument("--scaled", action="store_true", help="scale floats of 8 bits to each layer; the others are")
    command.add_argument(
        "--layers", type=int, default=8, metavar="N", help="that tables show, the largest (default: 8)"
    )
    command.add_argument("--out", type=Path, metavar="DIR", help="where the page goes (default: the run's folder)")
    command.set_defaults(run=answers.tell_fit)
    _add_json(command)


def _fill_contraction(command: argparse.ArgumentParser) -> None:
    from ..lab import contraction

    command.add_argument(
        "methods", nargs="*", metavar="METHOD", help=f"{METHOD_HELP} (default: {len(contraction.FAMILY)} of all kinds)"
    )
    command.add_argument("--on", type=Path, metavar="DIR", help="of the run whose gradients are taken")
    command.add_argument(
        "--size", type=int, default=10**5, metavar="N", help="of tensors, if not --on (default: 100000)"
    )
    command.add_argument("--draws", type=int, default=10, metavar="N", help="of what is drawn by chance (default: 10)")
    command.add_argument("--out", type=Path, metavar="DIR", help="where the page goes (default: the run's folder)")
    command.set_defaults(run=answers.tell_contraction)
    _add_json(command)


def _fill_link(command: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(title="actions", required=True, metavar="ACTION")
    action = actions.add_parser("check", help="measure what a link really carries")
    action.add_argument("link", metavar="LINK", help=LINK_HELP)
    action.add_argument("--seconds", type=float, default=5.0, metavar="S", help="to measure for (default: 5)")
    action.add_argument("--json", action="store_true", help="print JSON instead of tables")
    action.set_defaults(run=answers.check_link)


def _fill_scale(command: argparse.ArgumentParser) -> None:
    from ..lab.tasks import models

    command.add_argument("method", metavar="METHOD", help=METHOD_HELP)
    command.add_argument("--model", required=True, metavar="NAME", help=", ".join(models.MODELS))
    command.add_argument("--ranks", default="2..1024", metavar="A..B", help="powers of two, or a list such as 2,6,10")
    command.add_argument("--link", default="1gbit", metavar="LINK", help=f"{LINK_HELP} (default: 1gbit)")
    command.add_argument("--latency-ms", type=float, default=0.0, metavar="MS", help="of an exchange (default: 0)")
    command.add_argument("--compute-ms", type=float, default=0.0, metavar="MS", help="of a step (default: 0)")
    command.add_argument("--out", type=Path, metavar="FILE", help="a picture of it, PNG, SVG or PDF")
    command.set_defaults(run=answers.tell_scale)
    _add_json(command)


def _fill_topology(command: argparse.ArgumentParser) -> None:
    from ..lab import topology

    command.add_argument(
        "kind", metavar="KIND", help=f"{', '.join(topology.KINDS)}, or a notation such as 'Edges(((0, 1), (1, 2)))'"
    )
    command.add_argument("--ranks", type=int, required=True, metavar="N", help="how many")
    command.add_argument("--svg", type=Path, metavar="FILE", help="a picture of it")
    command.set_defaults(run=answers.tell_topology)
    _add_json(command)


def _fill_demo(command: argparse.ArgumentParser) -> None:
    from ..lab.runner import demo

    command.add_argument("--out", type=Path, default=Path("runs/demo"), metavar="DIR", help="default: runs/demo")
    command.add_argument("--ranks", type=int, default=demo.RANKS, metavar="N", help=f"default: {demo.RANKS}")
    command.add_argument("--steps", type=int, default=demo.STEPS, metavar="N", help=f"default: {demo.STEPS}")
    command.set_defaults(run=answers.run_demo)
    _add_json(command)


def _add_json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", default=False, help="print JSON instead of tables")


def _add_plan(command: argparse.ArgumentParser) -> None:
    """The flags for what a plan holds; what is not given comes from the run file, or from the plan's defaults."""
    from ..lab.runner.plan import BUDGETS, TRANSPORTS, Plan
    from ..lab.runner.run_folder import MINUTES

    default = {field.name: field.default for field in fields(Plan)}
    command.add_argument("--file", type=Path, metavar="TOML", help="a run file: any of these settings, by their names")
    command.add_argument("--out", type=Path, metavar="DIR", help="where the runs go")
    command.add_argument("--workload", metavar="W", help="a name (`thinwire workloads`), or path/to/file.py:Name")
    command.add_argument("--ranks", type=int, metavar="N", help=f"how many (default: {default['ranks']})")
    command.add_argument(
        "--transport", metavar="T", help=f"{' or '.join(TRANSPORTS)} (default: {default['transport']})"
    )
    command.add_argument("--link", metavar="LINK", help=f"between the ranks, {STAR_HELP}")
    command.add_argument("--modeled", action="store_true", help="compute the link's time from bytes, make no link")
    command.add_argument("--budget", metavar="B", help=f"{', '.join(BUDGETS)} (default: {default['budget']})")
    length = command.add_mutually_exclusive_group()
    length.add_argument("--steps", type=int, metavar="N", help="instead of the budget's")
    length.add_argument("--epochs", type=float, metavar="X", help="instead of the budget's")
    batch = command.add_mutually_exclusive_group()
    batch.add_argument("--batch", type=int, metavar="N", help="examples a step over all ranks, not the workload's")
    batch.add_argument("--batch-per-rank", type=int, metavar="N", help="examples a step of each rank")
    command.add_argument("--accumulate", type=int, metavar="N", help="batches before gradients are exchanged")
    command.add_argument("--alone", action="store_true", help="the baseline: one rank, its batch, as many steps")
    command.add_argument("--lr-scale", type=float, metavar="X", help="times the workload's learning rate (default: 1)")
    command.add_argument(
        "--warmup", type=float, metavar="X", help="share of the steps for a linear warm-up of the rate"
    )
    command.add_argument("--shards", metavar="S", help="iid, or dirichlet:ALPHA for skewed labels (default: iid)")
    command.add_argument("--straggler", metavar="RANK:FACTOR", help="a rank that is slower, such as 1:3 for 3 times")
    command.add_argument("--seed", type=int, metavar="S", help=f"default: {default['seed']}")
    command.add_argument("--threads", type=int, metavar="N", help=f"of each rank (default: {default['threads']})")
    command.add_argument("--evaluations", type=int, metavar="N", help="over the run (default: the budget's)")
    command.add_argument("--data", metavar="DIR", help="the data sets' folder (default: the variable THINWIRE_DATA)")
    command.add_argument(
        "--checkpoint-minutes",
        type=float,
        metavar="X",
        help=f"between two checkpoints, from which an interrupted run goes on (default: {MINUTES:g}; 0: none)",
    )
    command.add_argument("--quiet", action="store_true", help="show no progress")
