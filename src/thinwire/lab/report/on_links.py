"""What runs without a link would take on one: by step times measured over it, or modeled from bytes and rate."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from statistics import fmean

from thinwire.lab.links import Link
from thinwire.lab.recording.runs import Run
from thinwire.lab.sizing.link_model import link_seconds

MEASURED = "time: its steps times the step time of a shorter run that was measured over this link"
GUESSED = "has no link bytes by step: its modeled time follows its payload from step to step"


def on_links(runs: Iterable[Run], links: Sequence[Link]) -> list[Run]:
    """The runs, those without a link once for each of these links; ValueError if that cannot be computed."""
    runs = list(runs)
    if not links:
        return runs
    for link in links:
        if link.star:
            raise ValueError(
                f"the time on {link} cannot be modeled from finished runs, which tell the bytes of one link only: "
                "train with --link and --modeled"
            )
    if all(run.link is not None for run in runs):
        raise ValueError("all runs have a link of their own: a time can be modeled only for runs without one")
    with_link = [run for run in runs if run.link is not None]
    without = [run for run in runs if run.link is None]
    return [timed for link in dict.fromkeys(links) for timed in _on(without, link, with_link)] + with_link


def _on(runs: Sequence[Run], link: Link, others: Sequence[Run]) -> list[Run]:
    """Runs of a task are compared with each other: their times are all measured, or all modeled."""
    measured = {
        key: list(same)
        for key, same in groupby(
            sorted((run for run in others if run.link == str(link) and not run.modeled), key=_what_takes_time),
            key=_what_takes_time,
        )
    }
    lacking = {_task(run) for run in runs if _what_takes_time(run) not in measured and run.variant != "alone"}
    return [
        _modelled(run, link)
        if _task(run) in lacking or _what_takes_time(run) not in measured
        else _paced(run, link, measured[_what_takes_time(run)])
        for run in runs
    ]


def _task(run: Run) -> tuple[object, ...]:
    return run.workload, run.ranks, run.batch, run.threads


def _what_takes_time(run: Run) -> tuple[str, ...]:
    """Runs that share this differ in how many steps they make, not in what a step takes."""
    return tuple(map(str, (*_task(run), run.method, run.variant, run.examples or run.batch)))


def _paced(run: Run, link: Link, measured: Sequence[Run]) -> Run:
    """The run, with every step as long as in those that were measured."""
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


def _modelled(run: Run, link: Link) -> Run:
    noted = [*run.history, *run.evaluations]
    counts = all("link_bytes" in point for point in noted)
    carried: dict[float, float] = {point["step"]: _bytes(run, point) for point in noted}
    carried.setdefault(run.steps, run.bytes["link"])
    steps = sorted(carried)
    spent = link_seconds([carried[step] for step in steps], run.bytes["link"], min(link.up, link.down))
    on_wire = dict(zip(steps, spent, strict=True))

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
        warnings=run.warnings if counts else [*run.warnings, GUESSED],
    )


def _bytes(run: Run, point: dict[str, float]) -> float:
    """What the link had carried by then; runs from before tell their payload only."""
    if "link_bytes" in point:
        return point["link_bytes"]
    if run.bytes["payload"]:
        return run.bytes["link"] * point["payload_bytes"] / run.bytes["payload"]
    return run.bytes["link"] * point["step"] / run.steps
