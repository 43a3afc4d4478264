"""Programs that tests run in a network. They do not import thinwire, as importing torch takes seconds."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time

NEWNET = 0x40000000


def launcher(ranks: str, token: str) -> None:
    """Starts ranks as torchrun does, but when one ends, leaves the others running."""
    for rank in range(int(ranks)):
        subprocess.Popen([sys.executable, __file__, "rank", str(rank), token])
    os.wait()
    os._exit(5)


def rank(number: str, token: str) -> None:
    """Enters its namespace, prints where it is, and stays."""
    report = {"rank": int(number), "hub": namespace(), "user": os.readlink("/proc/self/ns/user")}
    opened = os.open(os.environ["THINWIRE_NAMESPACES"].split(":")[int(number)], os.O_RDONLY)
    assert ctypes.CDLL(None).setns(opened, NEWNET) == 0
    os.write(1, json.dumps(report | {"namespace": namespace()}).encode() + b"\n")  # print may write in several parts
    time.sleep(300)


def namespace() -> str:
    return os.readlink("/proc/thread-self/ns/net")


def parent(expected: str, *command: str) -> None:
    """Starts a command that expects another parent process, with this one in its place."""
    me = os.readlink("/proc/self")
    sys.exit(subprocess.call([me if part == expected else part for part in command]))


def listener() -> None:
    """Prints the signals it received until half a second after the first."""
    received: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, frame: received.append(number))
    print("listening", flush=True)
    while not received:
        time.sleep(0.01)
    time.sleep(0.5)
    print(*received)
    sys.exit(7)


def without_capability(number: str, *command: str) -> None:
    """Runs a command without a capability, as root."""
    drop_from_bounding_set = 24
    assert ctypes.CDLL(None).prctl(drop_from_bounding_set, int(number), 0, 0, 0) == 0
    os.execv(command[0], command)


def without_namespaces(*command: str) -> None:
    """Runs a command where the kernel allows no further network namespace."""
    user, new_user = os.getuid(), 0x10000000
    assert ctypes.CDLL(None).unshare(new_user) == 0
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    with open("/proc/sys/user/max_net_namespaces", "w") as file:
        file.write("0")
    os.execv(command[0], command)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
