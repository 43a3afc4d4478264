"""Sentences on the traffic of decentralized methods: the bytes on each link of a rank, within and between groups."""

from thinwire.lab.report.number_format import enumerated, human
from thinwire.lab.report.summary import Entry

MOST_NAMES = 8  # up to this many ranks are listed; of more, the number is given
SAME = 1.02  # bytes that differ by a smaller factor count as equal


def sentences(entry: Entry) -> str:
    """The traffic of the busiest rank and of the groups, in the entry's first run; empty if replicas are equal."""
    return " ".join(sentence for sentence in (_busiest(entry), _groups(entry)) if sentence)


def _groups(entry: Entry) -> str:
    """The bytes that all ranks together sent within groups and between groups."""
    run = entry.runs[0]
    groups = run.groups.get("groups", [])
    if not groups:
        return ""
    within, between = (human(run.groups[where] / run.steps) for where in ("within", "between"))
    listed = [f"ranks {enumerated([str(rank) for rank in ranks])}" for ranks in groups]
    names = enumerated(listed) if sum(map(len, groups)) <= MOST_NAMES else f"{len(groups)} groups of ranks"
    if len(groups) == 1:
        return f"All ranks are in one group and send {within} per step in total."
    return f"Groups: {names}. All ranks together send {within} per step within groups and {between} between them."


def _busiest(entry: Entry) -> str:
    run = entry.runs[0]
    if entry.consensus_distance is None or not run.links.get("sent") or not run.links.get("received"):
        return ""
    sent, received = ({int(rank): n / run.steps for rank, n in run.links[way].items()} for way in ("sent", "received"))
    rank, each = f"rank {run.links['rank']}", " each" if len(sent) > 1 else ""
    if sent.keys() == received.keys() and _equal(sent, received):
        return f"{rank} exchanges with {_ranks(sent)}: {_bytes(sent)}{each} in both directions."
    to, from_ = (f"{_ranks(way)} ({_bytes(way)}{' each' if len(way) > 1 else ''})" for way in (sent, received))
    return f"{rank} sends to {to} and receives from {from_}."


def _equal(sent: dict[int, float], received: dict[int, float]) -> bool:
    return all(received[rank] < SAME * n and n < SAME * received[rank] for rank, n in sent.items())


def _ranks(bytes_by_rank: dict[int, float]) -> str:
    if len(bytes_by_rank) > MOST_NAMES:
        return f"{len(bytes_by_rank)} ranks"
    names = enumerated([str(rank) for rank in sorted(bytes_by_rank)])
    return f"rank{'s' if len(bytes_by_rank) > 1 else ''} {names}"


def _bytes(bytes_by_rank: dict[int, float]) -> str:
    low, high = min(bytes_by_rank.values()), max(bytes_by_rank.values())
    return f"{human(high)} per step" if high < SAME * low else f"{human(low)} to {human(high)} per step"
