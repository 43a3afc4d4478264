"""Runs that are compared with each other: every method with the same seeds, links and learning rates to choose from."""

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

AXES = ("methods", "seeds", "links", "tune")  # what a study sets beside what every run in it shares


@dataclass(frozen=True)
class Cell:
    """One method on one link: its runs differ by learning rate and seed only."""

    tuning: tuple[Job, ...]  # one for each learning rate, all with the first seed
    seeds: Mapping[Job, tuple[Job, ...]]  # by the tuning run whose learning rate they have: all other seeds

    def ready(self, runs: Mapping[Job, Run], failed: Mapping[Job, str]) -> tuple[Job, ...]:
        """The runs that can be made by now: the other seeds wait for the best learning rate."""
        best = self.best(runs, failed)
        return self.tuning if best is None else (*self.tuning, *self.seeds[best])

    def best(self, runs: Mapping[Job, Run], failed: Mapping[Job, str]) -> Job | None:
        """The tuning run with the best validation metric; None while some are missing, or if all have diverged."""
        if len(self.tuning) == 1:
            return self.tuning[0]
        made = {job: runs[job] for job in self.tuning if job in runs}
        if any(job not in made and not _diverged(failed.get(job)) for job in self.tuning) or not made:
            return None
        return max(made, key=lambda job: _validated(made[job]))

    @property
    def tuned(self) -> tuple[Job, ...]:
        """All runs that it may have, if there are learning rates to choose from."""
        return (*self.tuning, *(job for jobs in self.seeds.values() for job in jobs)) if len(self.tuning) > 1 else ()

    @property
    def count(self) -> int:
        """How many runs there will be."""
        return len(self.tuning) + max(map(len, self.seeds.values()))

    def not_made(self, failed: Mapping[Job, str]) -> list[str]:
        """What failed and is missing: not a learning rate that diverged, unless all did."""
        others = [job for jobs in self.seeds.values() for job in jobs if job in failed]
        tried = [job for job in self.tuning if job in failed]
        if len(tried) < len(self.tuning):
            tried = [job for job in tried if not _diverged(failed[job])]
        return [failed[job] for job in (*tried, *others)]


def cells_of(settings: Mapping[str, Any], out: Path, minutes: float = MINUTES) -> list[Cell]:
    """The cells of a study, in the order of its links and methods."""
    methods, links, tune = settings.get("methods", []), settings.get("links"), settings.get("tune", [1.0])
    if not methods:
        raise PlanError("a comparison needs methods: --methods A B ..., or methods = [...] in a file")
    if not _are(methods, str):
        raise PlanError(f"methods takes a list such as ['dense', 'topk'], not {methods!r}")
    if "method" in settings:
        raise PlanError("a comparison takes methods, not a method")
    if links is not None and (not _are(links, str) or "link" in settings):
        raise PlanError(f"links takes a list such as ['10mbit', '100mbit'], instead of a link, not {links!r}")
    if not _are(tune, int | float) or not all(isfinite(scale) and scale > 0 for scale in tune):
        raise PlanError(f"tune takes what to multiply the learning rate by, such as [0.3, 1, 3], not {tune!r}")
    if "tune" in settings and "lr_scale" in settings:
        raise PlanError("a learning rate is scaled (lr_scale) or tuned (tune), not both")
    for what, given in (("methods", methods), ("links", links or ()), ("tune", tune)):
        _check_once(what, given)
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
    if _are(seeds, int):
        _check_once("seeds", seeds)
        return list(seeds)
    if not isinstance(seeds, int) or isinstance(seeds, bool) or seeds < 1:
        raise PlanError(f"seeds takes how many, 1 or more, or a list of them, not {seeds!r}")
    return list(range(first, first + seeds))


def _method(text: str) -> dict[str, Any]:
    """What a plan is to say for a method, or for a baseline: `alone`, or `accumulate:8`."""
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


def _validated(run: Run) -> float:
    """The metric that learning rates are chosen by; higher is better."""
    value = run.metrics[validation_name(run.metric)]
    return (value if run.better == "higher" else -value) if isfinite(value) else float("-inf")


def jobs_in(cells: Sequence[Cell], runs: Mapping[Job, Run], failed: Mapping[Job, str]) -> list[Job]:
    """All runs that can be made by now: seed by seed, as a comparison of all methods is worth most."""
    ready = [cell.ready(runs, failed) for cell in cells]
    return [job for _, job in sorted(_numbered(ready), key=lambda numbered: numbered[0])]


def _numbered(ready: Sequence[Sequence[Job]]) -> Iterator[tuple[int, Job]]:
    for jobs in ready:
        order = sorted({job.plan.seed: None for job in jobs})
        yield from ((order.index(job.plan.seed), job) for job in jobs)


def _are(given: Any, kind: Any) -> bool:
    return (
        isinstance(given, list)
        and bool(given)
        and all(isinstance(one, kind) and not isinstance(one, bool) for one in given)
    )


def _check_once(what: str, given: Sequence[Any]) -> None:
    named = [_name(one) if isinstance(one, str) else one for one in given]
    repeated = [one for one, count in Counter(named).items() if count > 1]
    if repeated:
        raise PlanError(f"{repeated[0]} is given twice in {what}")


def _name(text: str) -> str:
    """As part of a path."""
    return re.sub(r"[^A-Za-z0-9._=-]+", "-", text).strip("-.")
