"""A study of LGC on recorded values: what replicas have in common, and the bits and errors of learned codes."""

import argparse
import os
from pathlib import Path
from time import monotonic

import torch
from codes import Result, Student
from collecting import WORKLOADS, Plan, collected
from figures import against_bits, over_training
from record import Record
from tables import Table, baselines, held_indices, optimizers, orders, servers, shared, sizes

MOST_VALUES = 500  # per step, for which every setting is tried


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    collect = commands.add_parser("collect", help="train, and record the values at the leader's indices")
    collect.add_argument("--workload", choices=WORKLOADS, required=True)
    collect.add_argument("--ranks", type=int, default=4)
    collect.add_argument("--steps", type=int, required=True)
    collect.add_argument("--batch", type=int, required=True, help="examples per rank and step")
    collect.add_argument("--dense", type=int, default=0, help="steps at the start without compression")
    collect.add_argument("--ratio", type=float, default=0.001, help="fraction of a layer's entries")
    collect.add_argument("--seed", type=int, default=1)
    collect.add_argument("--data", type=Path, default=os.environ.get("THINWIRE_DATA"))
    collect.add_argument("--out", type=Path, required=True)
    study = commands.add_parser("study", help="print and plot the tables of recorded trainings")
    study.add_argument("files", type=Path, nargs="+")
    study.add_argument(
        "--learn", type=int, default=300, help="number of first steps to learn from; the rest is for tests"
    )
    study.add_argument("--passes", type=int, default=1, help="over these steps")
    study.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def studied(record: Record, passes: int, out: Path) -> None:
    """Print and write all tables and plots of one training."""
    student, wide, found = Student(record, passes), record.values <= MOST_VALUES, list[Result]()
    start, texts = monotonic(), list[str]()

    def add(table: Table, more: list[Result] | None = None) -> None:
        found.extend(more or [])
        texts.append(table.text())
        print(f"\n{texts[-1]}\n\n({monotonic() - start:.0f} s)", flush=True)
        (out / f"{record.workload}.txt").write_text("\n\n\n".join([about(record, passes), *texts]) + "\n")

    sharing = shared(record)
    add(sharing.table(record))
    over_training(record, sharing, out / f"{record.workload}-shared.png")
    add(held_indices(record))
    add(*baselines(record))
    add(orders(record, student, wide)[0])
    if wide:
        add(optimizers(record, student)[0])
    add(*sizes(record, student, wide))
    add(*servers(record, student, wide))
    against_bits(record, found, out / f"{record.workload}-rates.png")


def about(record: Record, passes: int) -> str:
    """The training of the tables."""
    plan, tested = record.plan, len(record.steps) - record.learning
    return (
        f"{record.workload}: {plan['ranks']} ranks x {plan['batch']} examples, {plan['steps']} steps, the first "
        f"{plan['dense']} dense; seed {plan['seed']}\n{record.values} values per step of {sum(record.sizes)} entries, "
        f"learned from {record.learning} steps ({passes} passes), tested on the {tested} after; "
        f"loss {sum(record.losses[:5]) / 5:.2f} to {sum(record.losses[-5:]) / 5:.2f}"
    )


def main() -> None:
    torch.set_num_threads(1)
    options = arguments()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    if options.command == "collect":
        plan = Plan(
            options.workload, options.ranks, options.steps, options.batch, options.dense, options.ratio, options.seed
        )
        torch.save(collected(plan, Path(options.data)), options.out)
        return
    options.out.mkdir(exist_ok=True)
    for path in options.files:
        studied(Record(path, options.learn), options.passes, options.out)


if __name__ == "__main__":
    main()
