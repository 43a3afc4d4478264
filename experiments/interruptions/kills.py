"""Kill runs with SIGKILL at random moments, resume them, and compare them with runs that were not killed.

    python experiments/interruptions/kills.py --out runs/kills

Every method is run once without interruption and once with kills, with simulated ranks and with real processes.
All processes of a run are killed at once, at a random moment: while it starts, between two steps, while it writes a
checkpoint. Everything that a run records is compared: losses, evaluations, bytes, layers.
Only seconds, the list of interruptions and the commit may differ.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

METHODS = {
    "error feedback": "topk",
    "low rank": "powersgd",
    "local steps": "LocalSGD(ErrorFeedback(TopK(0.05)), every=8, delay=3)",
    "learned": "WarmUp(20, DGC(by=LeaderTopK(values=LGC(learning_steps=40))))",
}
MAY_DIFFER = ("seconds", "took", "resumed", "machine", "commit")
MINUTES = 0.01  # between two checkpoints


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--kills", type=int, default=5, help="per method and transport (default: 5)")
    parser.add_argument("--seed", type=int, default=1, help="of the random moments (default: 1)")
    options = parser.parse_args()
    generator = random.Random(options.seed)
    kills, equal, count = 0, 0, 0
    for transport in ("simulated", "processes"):
        for kind, method in METHODS.items():
            folder = options.out / transport / kind.replace(" ", "-")
            expected, seconds = timed(method, transport, folder / "uninterrupted")
            left = options.kills
            while left:  # a run that ended before it was killed often enough is followed by another
                killed, done = with_kills(method, transport, folder / f"killed-{count}", left, seconds, generator)
                same = compared(expected) == compared(killed)
                left, kills, equal, count = left - done, kills + done, equal + same, count + 1
                after = ", ".join(str(point["step"]) for point in killed["resumed"])
                print(
                    f"{transport}, {kind}, {method}: killed {done} times in {expected['steps']} steps, resumed after "
                    f"step {after or '0'}: {'equal to the bit' if same else 'DIFFERENT'}",
                    flush=True,
                )
    print(f"{kills} kills, {equal} of {count} runs equal to the bit")
    sys.exit(equal != count)


def command(method: str, transport: str, out: Path, minutes: float) -> list[str]:
    plan = ["--workload", "digits-cnn", "--budget", "plateau", "--epochs", "50", "--ranks", "4", "--method", method]
    options = ["--transport", transport, "--out", str(out), "--checkpoint-minutes", str(minutes), "--quiet"]
    return [sys.executable, "-m", "thinwire", "train", *plan, *options]


def timed(method: str, transport: str, out: Path) -> tuple[dict[str, Any], float]:
    """A run without interruption, and its seconds including its start."""
    start = time.monotonic()
    subprocess.run(command(method, transport, out, 0), check=True)
    return json.loads((out / "run.json").read_text()), time.monotonic() - start


def with_kills(
    method: str, transport: str, out: Path, kills: int, seconds: float, generator: random.Random
) -> tuple[dict[str, Any], int]:
    """A run that is killed `kills` times, and then resumed to its end."""
    done = 0
    while done < kills and not (out / "run.json").exists():
        with subprocess.Popen(command(method, transport, out, MINUTES), start_new_session=True) as run:
            try:
                run.wait(generator.uniform(0.1, 0.8) * seconds)
            except subprocess.TimeoutExpired:
                for process in below(run.pid):  # torchrun's ranks have their own sessions
                    os.kill(process, signal.SIGKILL)
                done += 1
    subprocess.run(command(method, transport, out, MINUTES), check=True)
    return json.loads((out / "run.json").read_text()), done


def below(process: int) -> Iterator[int]:
    """A process and all its descendants, children first, so that no parent notices a killed child."""
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        for child in children.read_text().split():
            yield from below(int(child))
    yield process


def compared(run: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in run.items() if name not in MAY_DIFFER}
    for points in ("history", "evaluations"):
        kept[points] = [{k: v for k, v in point.items() if k != "seconds"} for point in kept[points]]
    return kept


if __name__ == "__main__":
    main()
