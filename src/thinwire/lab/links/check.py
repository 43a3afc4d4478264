"""`thinwire link check`: the measured rate of a link, beside the nominal one."""

import json
import math
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.table import Table

from thinwire.lab.links.link import Link
from thinwire.lab.links.network import LinkError, possible, refusal, wrapped
from thinwire.lab.tables import plain_table

MOST_PEERS = 32
REQUIRED_SHARE = 0.95  # of the nominal rate, in each direction


@dataclass(frozen=True)
class Way:
    """One direction of rank 0's link."""

    nominal: float  # bits/s
    wire: float  # bits/s, as the interface counted
    overhead: float  # bytes of headers, acknowledgements and retransmissions, as a share of the payload

    @property
    def share(self) -> float:
        """The measured rate as a share of the nominal one."""
        return self.wire / self.nominal

    @property
    def payload(self) -> float:
        """Payload bits per second, as programs see them."""
        return self.wire / (1 + self.overhead)


@dataclass(frozen=True)
class Checked:
    link: Link
    seconds: float  # per measurement
    peers: int  # ranks that rank 0 exchanged data with
    round_trip_seconds: float  # idle
    ways: dict[str, Way]

    @property
    def holds(self) -> bool:
        """Whether the machine reaches the nominal rate in both directions."""
        return min(self.ways["down"].share, self.ways["up"].share) >= REQUIRED_SHARE

    def as_dict(self) -> dict[str, Any]:
        ways = {name: asdict(way) | {"share": way.share, "payload": way.payload} for name, way in self.ways.items()}
        return asdict(self) | {"link": str(self.link), "ways": ways, "holds": self.holds}

    def shown(self) -> Table:
        """A table for the terminal."""
        ranks = "another rank" if self.peers == 1 else f"{self.peers} other ranks"
        table = plain_table(
            title=f"A link of {self.link}, from one rank to {ranks}",
            caption=f"Round trip, idle: {self.round_trip_seconds * 1e3:.2f} ms. "
            + ("" if self.holds else "This machine is too slow, or too busy, for this link."),
        )
        table.add_column("direction", no_wrap=True)
        for column in ("nominal", "on the wire", "share", "payload", "overhead"):
            table.add_column(column, justify="right", no_wrap=True)
        for name, way in self.ways.items():
            rates = [_shown(rate) for rate in (way.nominal, way.wire, way.payload)]
            table.add_row(name, rates[0], rates[1], f"{way.share:.1%}", rates[2], f"{way.overhead:.1%}")
        return table


def check(link: Link, seconds: float = 2.0) -> Checked:
    """Create a link and measure each direction for `seconds`, then both at once; raises LinkError on failure."""
    if link.star:
        raise LinkError(f"a star has ordinary links: instead of {link}, check {replace(link, star=False)}")
    reason = possible()
    if reason:
        raise LinkError(reason)
    # With a single peer, a rank sees the slower of the two directions; with more peers, it fills its own link.
    peers = min(MOST_PEERS, math.ceil(max(link.down, link.up) / min(link.down, link.up)))
    command = [sys.executable, "-m", "thinwire.lab.links.probe", str(peers), str(min(link.down, link.up)), str(seconds)]
    ended = subprocess.run(wrapped(command, link, 1 + peers), capture_output=True, text=True, check=False)
    if ended.returncode:
        raise LinkError(refusal(ended))
    measured = json.loads(ended.stdout)
    nominal = {"down": min(link.down, peers * link.up), "up": min(link.up, peers * link.down)}

    def way(phase: str, direction: str) -> Way:
        counts = measured[phase][direction]
        overhead = counts["wire"] / counts["payload"] - 1
        return Way(nominal[direction], wire=8 * counts["wire_per_second"], overhead=overhead)

    ways = {
        "down": way("down", "down"),
        "up": way("up", "up"),
        "down, both at once": way("both", "down"),
        "up, both at once": way("both", "up"),
    }
    return Checked(link, seconds, peers, measured["round_trip_seconds"], ways)


def _shown(rate: float) -> str:
    size, unit = next(((size, unit) for size, unit in ((1e9, "G"), (1e6, "M")) if rate >= size), (1e3, "k"))
    return f"{rate / size:.4g} {unit}bit/s"
