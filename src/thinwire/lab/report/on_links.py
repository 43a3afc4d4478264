"""What runs without a link would take on one: their bytes over its rate, beside the seconds that were measured."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from thinwire.lab.links import Link
from thinwire.lab.modelled import link_seconds
from thinwire.lab.runs import Run

GUESSED = "has no link bytes by step: its modelled time follows its payload from step to step"


def on_links(runs: Iterable[Run], links: Sequence[Link]) -> list[Run]:
    """The runs, those without a link once for each of these links; ValueError if that cannot be computed."""
    runs = list(runs)
    if not links:
        return runs
    for link in links:
        if link.star:
            raise ValueError(
                f"the time on {link} cannot be modelled from finished runs, which tell the bytes of one link only: "
                "train with --link and --modelled"
            )
    if all(run.link is not None for run in runs):
        raise ValueError("all runs have a link of their own: a time can be modelled only for runs without one")
    with_link = [run for run in runs if run.link is not None]
    modelled = [_on(run, link) for link in dict.fromkeys(links) for run in runs if run.link is None]
    return modelled + with_link


def _on(run: Run, link: Link) -> Run:
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
        modelled=True,
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
