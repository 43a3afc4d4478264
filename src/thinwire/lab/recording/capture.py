"""Saves gradients at some steps of a run, as rank 0 computes them (captured.py reads them)."""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from zipfile import ZipFile, ZipInfo

import numpy as np
import torch
from torch import Tensor

from thinwire import simulate
from thinwire.lab.recording.captured import FOLDER, INDEX, SCHEMA, file_of
from thinwire.lab.runner.learner import Learner, Task
from thinwire.lab.runner.plan import Plan


class Capture:
    """Saves the gradients of as many steps as the plan requests; none by default, and none on ranks other than 0."""

    def __init__(self, plan: Plan, task: Task, learner: Learner, folder: Path | None) -> None:
        self._due: list[int] = []
        self._steps: list[int] = []
        if plan.capture is None or learner.rank:
            return
        if folder is None:
            raise ValueError("a run that captures gradients needs a folder for them")
        self._due = steps_of(plan.capture, task.steps)
        self._folder, self._replica = folder / FOLDER, simulate.replica_of(learner.model)
        self._about = {
            "schema": SCHEMA,
            "workload": plan.workload,
            "method": plan.method,
            "seed": plan.seed,
            "batch": task.batch,
            "length": task.steps,
        }
        self._folder.mkdir(parents=True, exist_ok=True)

    def remove_stale(self) -> None:
        """Remove the files of an unfinished run, except those from before the checkpoint that this run resumes."""
        if not self._due:
            return
        kept = {file_of(step) for step in self._steps}
        for old in (*self._folder.glob("step-*.npz"), *(() if kept else (self._folder / INDEX,))):
            if old.name not in kept:
                old.unlink(missing_ok=True)

    def state_dict(self) -> dict[str, list[int]]:
        return {"steps": self._steps}

    def load_state_dict(self, state: dict[str, list[int]]) -> None:
        self._steps = state["steps"]

    def at(self, step: int) -> AbstractContextManager[None]:
        """A context for computing the gradients of a step: if the step is due, they are saved as they arrive."""
        return self._writing(step) if step in self._due else nullcontext()

    @contextmanager
    def _writing(self, step: int) -> Iterator[None]:
        # Under another name first, as the run may be interrupted.
        path = self._folder / file_of(step)
        unfinished = path.with_suffix(".unfinished")
        try:
            with ZipFile(unfinished, "w") as file:
                yield from self._hooked(file)
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
        self._steps.append(step)
        self._write_index()

    def _hooked(self, file: ZipFile) -> Iterator[None]:
        """Save each gradient when it is complete, before DDP copies it into a bucket; keeps no copies in memory."""
        parameters = self._replica.parameters
        names = {id(p): name for name, p in parameters.items()}
        written: set[str] = set()

        def save(p: Tensor) -> None:
            name = names[id(p)]
            if name in written:
                raise ValueError(f"the gradient of {name} arrives in several parts, which cannot be captured")
            assert p.grad is not None
            _write(file, name, p.grad)
            written.add(name)

        hooks = [
            p.register_post_accumulate_grad_hook(save)  # type: ignore[no-untyped-call]  # torch leaves it untyped
            for p in parameters.values()
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
        for name, p in parameters.items():
            if name not in written:  # unused in this step
                _write(file, name, torch.zeros_like(p))

    def _write_index(self) -> None:
        parameters = [
            {"name": name, "kind": self._replica.kinds[name], "shape": list(p.shape)}
            for name, p in self._replica.parameters.items()
        ]
        index = self._folder / INDEX
        unfinished = index.with_suffix(".unfinished")
        unfinished.write_text(
            json.dumps(self._about | {"steps": self._steps, "parameters": parameters}, indent=1) + "\n"
        )
        unfinished.replace(index)


def steps_of(count: int, length: int) -> list[int]:
    """`count` steps of a run, evenly spaced from the first to the last; a single one is in the middle."""
    if count == 1:
        return [(length + 1) // 2]
    count = min(count, length)
    return [1 + i * (length - 1) // max(1, count - 1) for i in range(count)]


def _write(file: ZipFile, name: str, gradient: Tensor) -> None:
    # Without a date, so that equal gradients give equal files.
    with file.open(ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
        array = gradient.detach().to("cpu", torch.float32).contiguous().numpy()
        np.lib.format.write_array(member, array, allow_pickle=False)
