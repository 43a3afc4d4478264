"""Runs within a network of ours: measures what rank 0's link carries, and prints it as JSON."""

import json
import socket
import statistics
import struct
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from threading import Thread

from thinwire.lab.links.holder import address
from thinwire.lab.links.ranks import counters, enter

CHUNK = 1 << 18  # bytes
PINGS = 50
WARM_UP = 0.5  # seconds, at most: TCP has found the rate by then


def main() -> None:
    peers, seconds = int(sys.argv[1]), float(sys.argv[2])
    enter(0)
    with socket.create_server((address(0), 0)) as server:
        measured = {
            "round_trip_seconds": round_trip(server),
            "up": measure(server, peers, seconds, ("up",)),
            "down": measure(server, peers, seconds, ("down",)),
            "both": measure(server, peers, seconds, ("up", "down")),
        }
    print(json.dumps(measured))


def round_trip(server: socket.socket) -> float:
    """The median time that a byte takes to the other side and back, on an idle link."""
    with connected(server, 1) as (ours, theirs):
        taken = []
        for _ in range(PINGS):
            start = time.perf_counter()
            for here, there in ((ours, theirs), (theirs, ours)):
                here.sendall(b"x")
                there.recv(1)
            taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def measure(server: socket.socket, peers: int, seconds: float, ways: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """Send as much as possible, and tell what arrived and what the interface counted, in bytes a second."""
    with ExitStack() as stack:
        flows: dict[str, list[Flow]] = {"down": [], "up": []}
        for rank in range(1, peers + 1):
            ours, theirs = stack.enter_context(connected(server, rank))
            for way in ways:
                flow = Flow(ours, theirs) if way == "up" else Flow(theirs, ours)
                stack.enter_context(flow.running())
                flows[way].append(flow)

        def state() -> list[float]:
            arrived = [sum(flow.arrived for flow in flows[way]) for way in ("down", "up")]
            return [time.perf_counter(), *arrived, *counters()]

        time.sleep(min(WARM_UP, seconds))
        before = state()
        time.sleep(seconds)
        elapsed, *gained = [after - start for start, after in zip(before, state(), strict=True)]
    down, up, wire_down, wire_up = [gain / elapsed for gain in gained]
    return {"down": {"payload": down, "wire": wire_down}, "up": {"payload": up, "wire": wire_up}}


@contextmanager
def connected(server: socket.socket, rank: int) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection between rank 0 and another; what is still on its way in the end is thrown away."""

    def connect() -> socket.socket:
        enter(rank)
        return socket.create_connection(server.getsockname())

    with ThreadPoolExecutor(1) as its_own:  # only that thread moves; its socket may be used by any
        theirs = its_own.submit(connect).result()
    ours, _ = server.accept()
    with ours, theirs:
        for end in (ours, theirs):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        yield ours, theirs


@dataclass
class Flow:
    """One direction of a connection, kept full."""

    source: socket.socket
    sink: socket.socket
    arrived: int = 0  # bytes

    @contextmanager
    def running(self) -> Iterator[None]:
        threads = [Thread(target=self._send), Thread(target=self._receive)]
        for thread in threads:
            thread.start()
        yield
        for end in (self.source, self.sink):
            with suppress(OSError):  # the other end may have reset it already
                end.shutdown(socket.SHUT_RDWR)  # wakes the threads
        for thread in threads:
            thread.join()

    def _send(self) -> None:
        chunk = bytes(CHUNK)
        try:
            while True:
                self.source.sendall(chunk)
        except OSError:  # shut down
            return

    def _receive(self) -> None:
        buffer = bytearray(CHUNK)
        while received := self.sink.recv_into(buffer):
            self.arrived += received


if __name__ == "__main__":
    main()
