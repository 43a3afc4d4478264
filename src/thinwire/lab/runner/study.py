"""Comparisons of methods: every method with the same seeds and links, and with the same learning rates to tune."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from thinwire.lab.recording.runs import Run, validation_name
from thinwire.lab.runner.comparison import DIVERGED, Job
from thinwire.lab.runner.plan import PlanError, plan_of
from thinwire.lab.runner.run_folder import MINUTES

AXES = ("methods", "seeds", "links", "tune")  # settings of a study; all others are shared by its runs


@dataclass(frozen=True)
class Cell:
    """One method on one link: its runs differ only in learning rate and seed."""

    tuning: tuple[Job, ...]  # one for each learning rate, all with the first seed
    seeds: Mapping[Job, tuple[Job, ...]]  # by tuning run: the runs of the other seeds with its learning rate

    def ready(self, runs: Mapping[Job, Run], failed: Mapping[Job, str]) -> tuple[Job, ...]:
        """The runs that can be executed by now: the other seeds wait for the best learning rate."""
        best = self.best(runs, failed)
        return self.tuning if best is None else (*self.tuning, *self.seeds[best])

    def best(self, runs: Mapping[Job, Run], failed: Mapping[Job, str]) -> Job | None:
        """The tuning run with the best validation metric; None while some are missing, or if all diverged."""
        if len(self.tuning) == 1:
            return self.tuning[0]
        made = {job: runs[job] for job in self.tuning if job in runs}
        if any(job not in made and not _diverged(failed.get(job)) for job in self.tuning) or not made:
            return None
        return max(made, key=lambda job: _validation_score(made[job]))

    @property
    def tuned(self) -> tuple[Job, ...]:
        """All runs that it may have, if it tunes the learning rate."""
        return (*self.tuning, *(job for jobs in self.seeds.values() for job in jobs)) if len(self.tuning) > 1 else ()

    @property
    def count(self) -> int:
        """The number of runs there will be."""
        return len(self.tuning) + max(map(len, self.seeds.values()))

    def missing(self, failed: Mapping[Job, str]) -> list[str]:
        """Why runs are missing; a diverged learning rate counts only if all diverged."""
        others = [job for jobs in self.seeds.values() for job in jobs if job in failed]
        tuning = [job for job in self.tuning if job in failed]
        if len(tuning) < len(self.tuning):
            tuning = [job for job in tuning if not _diverged(failed[job])]
        return [failed[job] for job in (*tuning, *others)]


def cells_of(settings: Mapping[str, Any], out: Path, minutes: float = MINUTES) -> list[Cell]:
    """The cells of a study, in the order of its links and methods."""
    methods, links, tune = settings.get("methods", []), settings.get("links"), settings.get("tune", [1.0])
    if not methods:
        raise PlanError("a comparison needs methods: --methods A B ..., or methods = [...] in a file")
    if not _is_list_of(methods, str):
        raise PlanError(f"methods takes a list such as ['dense', 'topk'], not {methods!r}")
    if "method" in settings:
        raise PlanError("a comparison takes methods, not a method")
    if links is not None and (not _is_list_of(links, str) or "link" in settings):
        raise PlanError(f"links takes a list such as ['10mbit', '100mbit'], instead of a link, not {links!r}")
    if not _is_list_of(tune, int | float) or not all(isfinite(scale) and scale > 0 for scale in tune):
        raise PlanError(f"tune takes a list of factors for the learning rate, such as [0.3, 1, 3], not {tune!r}")
    if "tune" in settings and "lr_scale" in settings:
        raise PlanError("a learning rate is scaled (lr_scale) or tuned (tune), not both")
    for what, given in (("methods", methods), ("links", links or ()), ("tune", tune)):
        _check_distinct(what, given)
    shared = {name: value for name, value in settings.items() if name not in AXES}
    return [
        _cell(shared | _method(method) | ({} if link is None else {"link": link}), settings, folder, minutes)
        for link in links or [None]
        for method in methods
        for folder in [out / _name(method) if links is None else out / _name(link) / _name(method)]
    ]


def _cell(shared: dict[str, Any], settings: Mapping[str, Any], folder: Path, minutes: float) -> Cell:
    tune = settings.get("tune")
    first, *others = _seeds(settings, plan_of(shared).seed)

    def job(scale: float | None, seed: int) -> Job:
        scaled = {} if scale is None else {"lr_scale": float(scale)}
        where = folder if scale is None else folder / f"lr-{scale:g}"
        return Job(plan_of(shared | scaled | {"seed": seed}), where / f"seed-{seed}", minutes)

    scales: Sequence[float | None] = tune or [None]
    return Cell(
        tuple(job(scale, first) for scale in scales),
        {job(scale, first): tuple(job(scale, seed) for seed in others) for scale in scales},
    )


def _seeds(settings: Mapping[str, Any], first: int) -> list[int]:
    seeds = settings.get("seeds", 1)
    if _is_list_of(seeds, int):
        _check_distinct("seeds", seeds)
        return list(seeds)
    if not isinstance(seeds, int) or isinstance(seeds, bool) or seeds < 1:
        raise PlanError(f"seeds takes a number of seeds, 1 or more, or a list of seeds, not {seeds!r}")
    return list(range(first, first + seeds))


def _method(text: str) -> dict[str, Any]:
    """The settings of a plan for a method, or for a baseline: `alone`, or `accumulate:8`."""
    if text == "alone":
        return {"method": "dense", "alone": True}
    kind, _, count = text.partition(":")
    if kind == "accumulate":
        if not count.isdecimal() or int(count) < 2:
            raise PlanError(f"{text!r} lacks the number of batches to accumulate: 2 or more, as in accumulate:8")
        return {"method": "dense", "accumulate": int(count)}
    return {"method": text}


def _diverged(reason: str | None) -> bool:
    return reason is not None and DIVERGED in reason


def _validation_score(run: Run) -> float:
    """The metric that learning rates are tuned by; higher is better."""
    value = run.metrics[validation_name(run.metric)]
    return (value if run.better == "higher" else -value) if isfinite(value) else float("-inf")


def jobs_in(cells: Sequence[Cell], runs: Mapping[Job, Run], failed: Mapping[Job, str]) -> list[Job]:
    """All runs that can be executed by now, seed by seed: all methods are compared before more seeds are run."""
    ready = [cell.ready(runs, failed) for cell in cells]
    return [job for _, job in sorted(_numbered(ready), key=lambda numbered: numbered[0])]


def _numbered(ready: Sequence[Sequence[Job]]) -> Iterator[tuple[int, Job]]:
    for jobs in ready:
        order = sorted({job.plan.seed: None for job in jobs})
        yield from ((order.index(job.plan.seed), job) for job in jobs)


def _is_list_of(given: Any, kind: Any) -> bool:
    return (
        isinstance(given, list)
        and bool(given)
        and all(isinstance(one, kind) and not isinstance(one, bool) for one in given)
    )


def _check_distinct(what: str, given: Sequence[Any]) -> None:
    named = [_name(one) if isinstance(one, str) else one for one in given]
    repeated = [one for one, count in Counter(named).items() if count > 1]
    if repeated:
        raise PlanError(f"{repeated[0]} is given twice in {what}")


def _name(text: str) -> str:
    """The text as a part of a path."""
    return re.sub(r"[^A-Za-z0-9._=-]+", "-", text).strip("-.")
