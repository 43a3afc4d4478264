"""A queue file: tables of plans, and the runs that they describe."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from thinwire.lab.recording.runs import FILE, Run
from thinwire.lab.runner.comparison import Job
from thinwire.lab.runner.jobs import check_validation
from thinwire.lab.runner.plan import Plan, PlanError, read_file
from thinwire.lab.runner.plan_checks import check_plan
from thinwire.lab.runner.run_folder import MINUTES, check_minutes
from thinwire.lab.runner.study import AXES, Cell, cells_of

SETTINGS = ("out", "checkpoint_minutes", "defaults", "plans")  # of a queue file
OWN = ("name", "tags", "priority", "quiet_machine")  # settings of a table of plans, beside those of a comparison
WORK = ".queue"  # the folder below `out` for unfinished runs
FAILED = "failed.txt"  # in a run's folder: why it failed


@dataclass(frozen=True)
class Item:
    """A run of a queue: its job with its own folder, and the file that remains when it is finished."""

    job: Job
    file: Path
    entry: "Entry"

    @property
    def name(self) -> str:
        scale = self.job.plan.lr_scale
        return f"{self.entry.name}: {self.job.name}" + ("" if scale == 1 else f", lr x{scale:g}")

    @property
    def needs_quiet(self) -> bool:
        """Whether its measurements, such as the time on a real link, need a machine without other load."""
        plan = self.job.plan
        return self.entry.quiet_machine or (plan.link is not None and not plan.modeled)

    def finished(self) -> Run | None:
        """The finished run of this plan, if there is one."""
        with suppress(ValueError):
            return self.job.finished_at(self.file)
        return None

    def failure(self) -> str | None:
        """Why it failed, or why the file in its place belongs to another plan."""
        path = self.job.folder / FAILED
        if path.exists():
            return path.read_text().strip()
        try:
            self.job.finished_at(self.file)
        except ValueError as error:
            return str(error)
        return None


@dataclass(frozen=True)
class Entry:
    """A table of a queue file: cells of runs that are compared."""

    name: str
    cells: tuple[Cell, ...]
    tags: tuple[str, ...]
    priority: float  # higher runs first
    quiet_machine: bool


@dataclass(frozen=True)
class Queue:
    """The content of a queue file."""

    out: Path
    entries: tuple[Entry, ...]

    @property
    def work(self) -> Path:
        return self.out / WORK

    def tagged(self, tags: list[str]) -> "Queue":
        """The queue of the entries with any of these tags; ValueError for an unknown tag."""
        known = {tag for entry in self.entries for tag in entry.tags}
        for tag in tags:
            if tag not in known:
                hint = f"there are {', '.join(sorted(known))}" if known else "it has no tags"
                raise ValueError(f"nothing in the queue has the tag {tag!r}: {hint}")
        return replace(self, entries=tuple(e for e in self.entries if not tags or set(tags) & set(e.tags)))

    def items(self) -> list[Item]:
        """All runs that are known by now, in order; tuned runs are known when their learning rate is."""
        unique: dict[Path, tuple[int, Item]] = {}
        for entry in self.entries:
            for numbered in self._of(entry):
                unique.setdefault(numbered[1].file, numbered)
        # Seed by seed: a comparison of all methods comes before more seeds of one.
        ordered = sorted(unique.values(), key=lambda numbered: (-numbered[1].entry.priority, numbered[0]))
        return [item for _, item in ordered]

    def unknown(self) -> int:
        """The number of runs that are not known yet: seeds that wait for their learning rate."""
        waiting: set[tuple[Path, ...]] = set()  # for each run, its possible files
        for entry in self.entries:
            for cell in entry.cells:
                runs, failed = self._tuned(entry, cell)
                if cell.best(runs, failed) is None and not cell.missing(failed):
                    waiting |= {tuple(map(self._file, jobs)) for jobs in zip(*cell.seeds.values(), strict=True)}
        return len(waiting)

    def _of(self, entry: Entry) -> Iterator[tuple[int, Item]]:
        """The runs of a table that are known by now, each with the number of its seed."""
        ready = [item for cell in entry.cells for item in self._of_cell(entry, cell)]
        order = sorted({item.job.plan.seed for item in ready})
        yield from ((order.index(item.job.plan.seed), item) for item in ready)

    def _of_cell(self, entry: Entry, cell: Cell) -> list[Item]:
        return [self._item(entry, job) for job in cell.ready(*self._tuned(entry, cell))]

    def _tuned(self, entry: Entry, cell: Cell) -> tuple[dict[Job, Run], dict[Job, str]]:
        """The finished tuning runs of a cell, and the reasons of the failed ones."""
        if len(cell.tuning) == 1:
            return {}, {}
        items = {job: self._item(entry, job) for job in cell.tuning}
        runs = {job: run for job, item in items.items() if (run := item.finished())}
        return runs, {job: reason for job, item in items.items() if (reason := item.failure())}

    def _item(self, entry: Entry, job: Job) -> Item:
        return Item(job, self._file(job), entry)

    def _file(self, job: Job) -> Path:
        path = self.out / job.folder.relative_to(self.work)
        return path.with_name(f"{path.name}.{FILE}")

    def check(self) -> None:
        """Raise PlanError if two plans would be saved in the same file."""
        seen: dict[Path, Item] = {}
        for item in (self._item(e, job) for e in self.entries for cell in e.cells for job in _all_of(cell)):
            other = seen.setdefault(item.file, item)
            if other.job.plan != item.job.plan:
                raise PlanError(
                    f"two plans have the same file {item.file}: {other.job.plan.command()} and "
                    f"{item.job.plan.command()}; give one of their tables another name"
                )


def _all_of(cell: Cell) -> Iterator[Job]:
    yield from cell.tuning
    for jobs in cell.seeds.values():
        yield from jobs


def read(path: Path) -> Queue:
    """The queue in a file; PlanError for any mistake in it."""
    stored = read_file(path)
    _check_known(f"the queue file {path}", stored, SETTINGS)
    # Relative to the file's folder, not to the working directory.
    out = Path(os.path.normpath(path.parent / _text("out", stored.get("out", f"runs/{path.stem}"))))
    minutes = stored.get("checkpoint_minutes", MINUTES)
    check_minutes(minutes)
    defaults, tables = stored.get("defaults", {}), stored.get("plans")
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise PlanError(f"{path} has no plans: a queue file has a table [[plans]] for each comparison")
    if not isinstance(defaults, dict):
        raise PlanError(f"defaults is a table, [defaults], not {defaults!r}")
    entries = []
    for number, table in enumerate(tables, start=1):
        try:
            entries.append(_entry(dict(defaults) | table, out / WORK, minutes))
        except ValueError as error:
            raise PlanError(f"{path}, [[plans]] number {number} with its defaults: {error}") from None
    queue = Queue(out, tuple(entries))
    queue.check()
    return queue


def _entry(settings: dict[str, Any], work: Path, minutes: float) -> Entry:
    _check_known("a table of plans", settings, (*OWN, *AXES, *(field.name for field in fields(Plan))))
    own = {name: settings.pop(name) for name in OWN if name in settings}
    if "method" in settings and "methods" not in settings:
        settings["methods"] = [settings.pop("method")]
    workload = _text("workload", settings.get("workload", ""))
    name = _text("name", own.get("name", Path(workload.rpartition(":")[2]).name or "plans"))
    if not name or Path(name).name != name or name.startswith("."):
        raise PlanError(f"a name becomes a folder: letters, digits, - and _, not {name!r}")
    tags, priority = own.get("tags", []), own.get("priority", 0)
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise PlanError(f"tags takes a list of texts, not {tags!r}")
    if isinstance(priority, bool) or not isinstance(priority, int | float):
        raise PlanError(f"priority takes a number, higher runs first, not {priority!r}")
    quiet = own.get("quiet_machine", False)
    if not isinstance(quiet, bool):
        raise PlanError(f"quiet_machine is true or false, not {quiet!r}")
    cells = cells_of(settings, work / name, minutes)
    for cell in cells:
        _check(cell)
    return Entry(name, tuple(cells), tuple(tags), float(priority), quiet)


def _check(cell: Cell) -> None:
    """Raise ValueError for a task, a method or a link that does not exist, before any run starts."""
    check_plan(cell.tuning[0].plan)
    if len(cell.tuning) > 1:
        check_validation(cell.tuning)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise PlanError(f"{name} takes a text, not {value!r}")
    return value


def _check_known(what: str, stored: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in stored:
        if name not in known:
            nearest = get_close_matches(name, known, n=1)
            hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
            raise PlanError(f"{what} has no setting {name!r}{hint}; it has {', '.join(known)}")
