"""Two nodes over a slow link, 25 million parameters: a step with learned codes beside one of DGC and of PowerSGD.

Codes are sent from the first step on, or learned in every step: their time does not depend on their error.
"""

from benchmarks.links import measure
from benchmarks.rows import Row
from thinwire.lab import links

NODES, STEPS = 2, 5  # the median step counts
DGC = "DGC(outside=0.0)"
METHODS = {
    "PowerSGD(1)": "ErrorFeedback(PowerSGD(1))",
    "PowerSGD(4)": "ErrorFeedback(PowerSGD(4))",
    "leader top-k, 4 bits": "DGC(by=LeaderTopK(values=Quantize(4), ends=True), outside=0.0)",
    "LGC, coded": "DGC(by=LeaderTopK(values=LGC(0, check_every=1000), ends=True), outside=0.0)",
    "LGC, learning": "DGC(by=LeaderTopK(values=LGC(1000), ends=True), outside=0.0)",
    "LGC, parameter server, coded": (
        "DGC(by=Server(LeaderTopK(values=LGCServer(0, check_every=1000), ends=True), Nonzero()), outside=0.0)"
    ),
}


def run() -> list[Row]:
    reason = links.possible()
    if reason:
        return [Row(f"links, not measured: {reason}", float("nan"))]
    rows = []
    for link in ("20mbit", "100mbit"):
        seconds, coding = measure((DGC, *METHODS.values()), link, STEPS, NODES)
        rows.append(Row(f"{link}, {NODES} nodes: step of DGC ({_described(DGC, seconds, coding)})", 1.0))
        for name, method in METHODS.items():
            what = f"{link}, {NODES} nodes: step of DGC / of {name} ({_described(method, seconds, coding)})"
            rows.append(Row(what, seconds[DGC] / seconds[method]))
    return rows


def _described(method: str, seconds: dict[str, float], coding: dict[str, tuple[float, float]]) -> str:
    encoding, decoding = coding[method]
    return f"{1000 * seconds[method]:.0f} ms; encoding {1000 * encoding:.0f}, decoding {1000 * decoding:.0f}"
