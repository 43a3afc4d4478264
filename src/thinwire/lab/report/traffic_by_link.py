"""Over which of its links a rank speaks, and how much goes over each."""

from thinwire.lab.report.number_format import human, spoken
from thinwire.lab.report.summary import Entry

MOST_NAMES = 8  # of ranks; more are counted
SAME = 1.02  # links that carry more or less alike


def told(entry: Entry) -> str:
    """Sentences on the first run of a method whose replicas differ: its busiest rank, and its groups; else nothing."""
    return " ".join(said for said in (_busiest(entry), _groups(entry)) if said)


def _groups(entry: Entry) -> str:
    """What all ranks together sent to their own groups, and to others."""
    run = entry.runs[0]
    groups = run.groups.get("groups", [])
    if not groups:
        return ""
    within, between = (human(run.groups[where] / run.steps) for where in ("within", "between"))
    named = [f"ranks {spoken([str(rank) for rank in ranks])}" for ranks in groups]
    who = spoken(named) if sum(map(len, groups)) <= MOST_NAMES else f"{len(groups)} groups of ranks"
    if len(groups) == 1:
        return f"All ranks are in one group: {within} a step, of all together."
    return f"In groups, {who}: {within} a step within groups and {between} between them, of all ranks together."


def _busiest(entry: Entry) -> str:
    run = entry.runs[0]
    if entry.apart is None or not run.links.get("sent") or not run.links.get("received"):
        return ""
    sent, received = ({int(rank): n / run.steps for rank, n in run.links[way].items()} for way in ("sent", "received"))
    who, each = f"rank {run.links['rank']}", len(sent) > 1
    if sent.keys() == received.keys() and _alike(sent, received):
        back = "to each, as much from each" if each else "there, as much back"
        return f"{who} speaks with {_ranks(sent)}: {_bytes(sent)} {back}."
    there, back = (f"{_ranks(way)} ({_bytes(way)}{' each' if len(way) > 1 else ''})" for way in (sent, received))
    return f"{who} speaks to {there} and hears {back}."


def _alike(sent: dict[int, float], received: dict[int, float]) -> bool:
    return all(received[rank] < SAME * n and n < SAME * received[rank] for rank, n in sent.items())


def _ranks(way: dict[int, float]) -> str:
    if len(way) > MOST_NAMES:
        return f"{len(way)} ranks"
    return f"rank{'s' if len(way) > 1 else ''} {spoken([str(rank) for rank in sorted(way)])}"


def _bytes(way: dict[int, float]) -> str:
    low, high = min(way.values()), max(way.values())
    return f"{human(high)} a step" if high < SAME * low else f"{human(low)} to {human(high)} a step"
