"""The time that runs without a link would take on one: from step times measured over it, or modeled from the bytes."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from statistics import fmean

from thinwire.lab.links import Link
from thinwire.lab.recording.runs import Run
from thinwire.lab.sizing.link_model import link_seconds

MEASURED = "its time is its number of steps times the step time of a shorter run, measured over this link"
GUESSED = "has no link bytes by step; its modeled time assumes that they are proportional to its payload"


def on_links(runs: Iterable[Run], links: Sequence[Link]) -> list[Run]:
    """The runs, with each run without a link repeated for each of `links`; ValueError if that cannot be computed."""
    runs = list(runs)
    if not links:
        return runs
    for link in links:
        if link.star:
            raise ValueError(
                f"the time on {link} cannot be modeled from finished runs, which record the bytes of one link only: "
                "train with --link and --modeled"
            )
    if all(run.link is not None for run in runs):
        raise ValueError("all runs have a link of their own; time can be modeled only for runs without one")
    with_link = [run for run in runs if run.link is not None]
    without = [run for run in runs if run.link is None]
    return [timed for link in dict.fromkeys(links) for timed in _on(without, link, with_link)] + with_link


def _on(runs: Sequence[Run], link: Link, others: Sequence[Run]) -> list[Run]:
    """Put the runs on one link. Within a task all times are measured or all are modeled, as the runs are compared."""
    measured = {
        key: list(same)
        for key, same in groupby(
            sorted((run for run in others if run.link == str(link) and not run.modeled), key=_step_key),
            key=_step_key,
        )
    }
    unmeasured = {_task(run) for run in runs if _step_key(run) not in measured and run.variant != "alone"}
    return [
        _modeled(run, link)
        if _task(run) in unmeasured or _step_key(run) not in measured
        else _at_measured_pace(run, link, measured[_step_key(run)])
        for run in runs
    ]


def _task(run: Run) -> tuple[object, ...]:
    return run.workload, run.ranks, run.batch, run.threads


def _step_key(run: Run) -> tuple[str, ...]:
    """Runs with the same key have the same time per step; they differ in the number of steps only."""
    return tuple(map(str, (*_task(run), run.method, run.variant, run.examples or run.batch)))


def _at_measured_pace(run: Run, link: Link, measured: Sequence[Run]) -> Run:
    """The run, with the mean step time of the measured runs."""
    per_step = {part: fmean(other.seconds[part] / other.steps for other in measured) for part in run.seconds}

    def later(points: list[dict[str, float]]) -> list[dict[str, float]]:
        return [point | {"seconds": round(point["step"] * per_step["total"], 6)} for point in points]

    return replace(
        run,
        link=str(link),
        seconds={part: seconds * run.steps for part, seconds in per_step.items()},
        history=later(run.history),
        evaluations=later(run.evaluations),
        warnings=[*run.warnings, MEASURED],
    )


def _modeled(run: Run, link: Link) -> Run:
    points = [*run.history, *run.evaluations]
    has_link_bytes = all("link_bytes" in point for point in points)
    carried: dict[float, float] = {point["step"]: _bytes(run, point) for point in points}
    carried.setdefault(run.steps, run.bytes["link"])
    steps = sorted(carried)
    seconds = link_seconds([carried[step] for step in steps], run.bytes["link"], min(link.up, link.down))
    on_wire = dict(zip(steps, seconds, strict=True))

    def later(points: list[dict[str, float]]) -> list[dict[str, float]]:
        return [point | {"seconds": round(point["seconds"] + on_wire[point["step"]], 6)} for point in points]

    total = run.seconds["total"] + on_wire[run.steps]
    return replace(
        run,
        link=str(link),
        modeled=True,
        seconds=run.seconds | {"total": total, "exchange": on_wire[run.steps]},
        history=later(run.history),
        evaluations=later(run.evaluations),
        warnings=run.warnings if has_link_bytes else [*run.warnings, GUESSED],
    )


def _bytes(run: Run, point: dict[str, float]) -> float:
    """The link bytes up to this point; estimated from the payload for runs of old versions, which record only that."""
    if "link_bytes" in point:
        return point["link_bytes"]
    if run.bytes["payload"]:
        return run.bytes["link"] * point["payload_bytes"] / run.bytes["payload"]
    return run.bytes["link"] * point["step"] / run.steps
