"""What replicas share, and what a learned code makes of it: a study of LGC on recorded values, without any link."""

import argparse
import os
from pathlib import Path
from time import monotonic

import torch
from codes import Result, Student
from collecting import WORKLOADS, Plan, collected
from figures import against_bits, over_training
from record import Record
from tables import Table, baselines, held, optimizers, orders, servers, shared, sizes

WIDE = 500  # values a step, up to which there is time for every setting


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    collect = commands.add_parser("collect", help="train, and keep what would be said at the leader's places")
    collect.add_argument("--workload", choices=WORKLOADS, required=True)
    collect.add_argument("--ranks", type=int, default=4)
    collect.add_argument("--steps", type=int, required=True)
    collect.add_argument("--batch", type=int, required=True, help="examples of a rank, each step")
    collect.add_argument("--dense", type=int, default=0, help="steps at the start without compression")
    collect.add_argument("--ratio", type=float, default=0.001, help="of a layer's entries")
    collect.add_argument("--seed", type=int, default=1)
    collect.add_argument("--data", type=Path, default=os.environ.get("THINWIRE_DATA"))
    collect.add_argument("--out", type=Path, required=True)
    study = commands.add_parser("study", help="print and plot the tables of what was kept")
    study.add_argument("files", type=Path, nargs="+")
    study.add_argument("--learn", type=int, default=300, help="steps to learn from, the first; the rest is to judge by")
    study.add_argument("--passes", type=int, default=1, help="over these steps")
    study.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def studied(record: Record, passes: int, out: Path) -> None:
    """Print and write all tables and plots of one training."""
    student, wide, found = Student(record, passes), record.values <= WIDE, list[Result]()
    began, texts = monotonic(), list[str]()

    def answer(table: Table, more: list[Result] | None = None) -> None:
        found.extend(more or [])
        texts.append(table.text())
        print(f"\n{texts[-1]}\n\n({monotonic() - began:.0f} s)", flush=True)
        (out / f"{record.workload}.txt").write_text("\n\n\n".join([about(record, passes), *texts]) + "\n")

    sharing = shared(record)
    answer(sharing.table(record))
    over_training(record, sharing, out / f"{record.workload}-shared.png")
    answer(held(record))
    answer(*baselines(record))
    answer(orders(record, student, wide)[0])
    if wide:
        answer(optimizers(record, student)[0])
    answer(*sizes(record, student, wide))
    answer(*servers(record, student, wide))
    against_bits(record, found, out / f"{record.workload}-rates.png")


def about(record: Record, passes: int) -> str:
    """What the tables are of."""
    plan, judged = record.plan, len(record.steps) - record.learning
    return (
        f"{record.workload}: {plan['ranks']} ranks x {plan['batch']} examples, {plan['steps']} steps, the first "
        f"{plan['dense']} dense; seed {plan['seed']}\n{record.values} values a step of {sum(record.sizes)} entries, "
        f"learned from {record.learning} steps ({passes} passes), judged by the {judged} after; "
        f"loss {sum(record.losses[:5]) / 5:.2f} to {sum(record.losses[-5:]) / 5:.2f}"
    )


def main() -> None:
    torch.set_num_threads(1)
    said = arguments()
    said.out.parent.mkdir(parents=True, exist_ok=True)
    if said.command == "collect":
        plan = Plan(said.workload, said.ranks, said.steps, said.batch, said.dense, said.ratio, said.seed)
        torch.save(collected(plan, Path(said.data)), said.out)
        return
    said.out.mkdir(exist_ok=True)
    for path in said.files:
        studied(Record(path, said.learn), said.passes, said.out)


if __name__ == "__main__":
    main()
