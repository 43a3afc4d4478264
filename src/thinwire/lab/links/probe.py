"""Started in a network of namespaces: measures rank 0's link, and prints the result as JSON."""

import json
import socket
import statistics
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread

from thinwire.lab.links.holder import address
from thinwire.lab.links.rank_side import counters, enter

PINGS = 50
WARM_UP = 0.5  # seconds at most, until TCP has reached the rate


def main() -> None:
    peers, rate, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    # Unsent bytes must still be sent after the measurement, so keep them few: 50 ms of the rate, within limits.
    ahead = max(4096, min(1 << 22, rate // 8 // 20))
    enter(0)
    with socket.create_server((address(0), 0)) as server:
        measured = {"round_trip_seconds": round_trip(server)} | {
            name: measure(server, peers, seconds, ahead, ways)
            for name, ways in {"up": ["up"], "down": ["down"], "both": ["up", "down"]}.items()
        }
    print(json.dumps(measured))


def round_trip(server: socket.socket) -> float:
    """The median round-trip time of a byte on an idle link."""
    with connected(server, 1) as (ours, theirs):
        times = []
        for _ in range(PINGS):
            start = time.perf_counter()
            for here, there in ((ours, theirs), (theirs, ours)):
                here.sendall(b"x")
                there.recv(1)
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def measure(
    server: socket.socket, peers: int, seconds: float, ahead: int, ways: list[str]
) -> dict[str, dict[str, float]]:
    """Send as much as possible; returns for each direction the bytes per second, all bytes, and the payload bytes."""
    with ExitStack() as connections:
        flows: dict[str, list[Flow]] = {way: [] for way in ways}
        for rank in range(1, peers + 1):
            ours, theirs = connections.enter_context(connected(server, rank))
            for way in ways:
                flows[way].append(Flow(ours, theirs, ahead) if way == "up" else Flow(theirs, ours, ahead))
        first = counters()
        with ExitStack() as running:
            for flow in [flow for way in ways for flow in flows[way]]:
                running.enter_context(flow.running())
            time.sleep(min(WARM_UP, seconds))
            start, before = time.perf_counter(), counters()
            time.sleep(seconds)
            elapsed, after = time.perf_counter() - start, counters()
        last = counters()  # everything has arrived, so this compares with the payload
    index = {"down": 0, "up": 1}  # in the counters
    return {
        way: {
            "wire_per_second": (after[index[way]] - before[index[way]]) / elapsed,
            "wire": last[index[way]] - first[index[way]],
            "payload": sum(flow.arrived for flow in flows[way]),
        }
        for way in ways
    }


@contextmanager
def connected(server: socket.socket, rank: int) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection between rank 0 and another."""

    def connect() -> socket.socket:
        enter(rank)
        return socket.create_connection(server.getsockname())

    with ThreadPoolExecutor(1) as thread:  # only this thread enters the namespace; any thread may use its socket
        theirs = thread.submit(connect).result()
    ours, _ = server.accept()
    with ours, theirs:
        for end in (ours, theirs):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield ours, theirs


@dataclass
class Flow:
    """One direction of a connection, kept full."""

    source: socket.socket
    sink: socket.socket
    ahead: int  # bytes, unsent
    arrived: int = 0  # bytes
    enough: Event = field(default_factory=Event)

    @contextmanager
    def running(self) -> Iterator[None]:
        threads = [Thread(target=self._send), Thread(target=self._receive)]
        for thread in threads:
            thread.start()
        yield
        self.enough.set()
        for thread in threads:
            thread.join()

    def _send(self) -> None:
        self.source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, self.ahead)
        chunk = bytes(self.ahead)
        while not self.enough.is_set():
            self.source.sendall(chunk)
        self.source.shutdown(socket.SHUT_WR)

    def _receive(self) -> None:
        buffer = bytearray(1 << 18)
        while received := self.sink.recv_into(buffer):
            self.arrived += received


if __name__ == "__main__":
    main()
