"""Runs a command in a network of its own, with one namespace per rank; the network vanishes with this process.

It is started as a file, not as a module: `thinwire` imports torch, which would delay each start by seconds.
There are two processes. The outer one represents the command to the process that started it. The inner one is the first
process of a PID namespace, so that the kernel kills every process in it when it ends. No namespace has a name or a
mount, so it vanishes with its processes, and its interfaces with it.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import FrameType

VARIABLE = "THINWIRE_NAMESPACES"  # in the command's environment: one path per rank, separated by colons
INTERFACE = "eth0"  # in each rank's namespace
LOOPBACK = 1  # index of the interface, in every namespace
PACKET = 1600  # bytes, at most, on the wire
MAX_SEGMENTS = 44  # in 64 kB, the kernel's own limit
FAILED = 3  # exit code, after one line on stderr that begins with "thinwire: "

NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000
PR_SET_PDEATHSIG = 1
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Handler = Callable[[int, FrameType | None], object]


def main(parent: str, down: str, up: str, limited: str, *command: str) -> int:
    """Run the command; `limited` has a digit for each rank: 1 for a rate-limited link, 0 for an unlimited one."""
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)  # until both processes handle them
    try:
        import pyroute2  # noqa: F401  # check that it is installed
    except ImportError:
        return failed("a link needs pyroute2: pip install 'thinwire[lab]'")
    try:
        die_with(parent)
        isolate()
    except OSError as error:
        return failed(
            f"no network namespace can be created here: {error}; it needs root, or a kernel that lets users create "
            "user namespaces. Containers often forbid both; see also the sysctls user.max_user_namespaces, "
            "user.max_net_namespaces and kernel.apparmor_restrict_unprivileged_userns"
        )
    outer = os.readlink("/proc/self")
    inner = os.fork()
    if inner:
        on_signals(forwarding_to(inner))
        return exit_code(os.waitpid(inner, 0)[1])

    os.setsid()  # Ctrl-C reaches the command once, through the outer process
    on_signals(lambda number, frame: sys.exit(128 + number))
    die_with(outer)
    try:
        namespaces = network([int(digit) for digit in limited], int(down), int(up))
    except Exception as error:
        return failed(f"the network cannot be created here: {error}")
    return run(list(command), namespaces)


def failed(why: str) -> int:
    print(f"thinwire: {' '.join(why.split())}", file=sys.stderr)
    return FAILED


def die_with(parent: str) -> None:
    """Let the kernel kill this process when its parent, given by its number in /proc, ends."""
    system_call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL)
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    if status["PPid"].strip() != parent:  # the parent had ended before prctl
        sys.exit(128 + signal.SIGKILL)


def isolate() -> None:
    """Move this process into a new network namespace, and its children into a new PID namespace."""
    user, group = os.geteuid(), os.getegid()
    try:
        system_call("unshare", NEWNET | NEWPID)
    except PermissionError:
        system_call("unshare", NEWUSER | NEWNET | NEWPID)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")  # root, as the ranks need its capabilities after exec
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")


def network(limited: list[int], down: int, up: int) -> list[str]:
    """Create a namespace per rank, connected by a bridge in this process's namespace; returns paths to open them."""
    from pyroute2 import IPRoute

    hub = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    paths = []
    with IPRoute() as here:
        here.link("set", index=LOOPBACK, state="up")  # torchrun's store uses it, so its traffic is not on a link
        with needing("bridge"):
            here.link("add", ifname="bridge", kind="bridge")
        bridge = here.link_lookup(ifname="bridge")[0]
        here.link("set", index=bridge, state="up")
        for rank, has_limit in enumerate(limited):
            system_call("unshare", NEWNET)
            # Never closed, so the namespace lives exactly as long as this process.
            opened = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
            paths.append(f"/proc/{os.readlink('/proc/self')}/fd/{opened}")
            attach(rank, hub, up if has_limit else None)
            system_call("setns", hub, NEWNET)
            port = here.link_lookup(ifname=f"port{rank}")[0]
            if has_limit:
                with needing("sch_tbf"):
                    here.tc("add", "tbf", port, **shape(down))
            here.link("set", index=port, state="up", master=bridge)
    return paths


def attach(rank: int, hub: int, up: int | None) -> None:
    """Add an interface to this process's current namespace, with its other end in the hub."""
    from pyroute2 import IPRoute
    from pyroute2.ethtool.ioctl import IoctlEthtool

    with IPRoute() as here:
        here.link("set", index=LOOPBACK, state="up")
        with needing("veth"):
            here.link("add", ifname=INTERFACE, kind="veth", peer={"ifname": f"port{rank}", "net_ns_fd": hub})
        end = here.link_lookup(ifname=INTERFACE)[0]
        here.addr("add", index=end, address=address(rank), prefixlen=16)
        # The kernel passes up to 64 kB at once to a veth, with headers counted once. Without this offload it cuts them
        # into packets behind the queue, so that the counters show what a wire would carry.
        with closing(IoctlEthtool(INTERFACE)) as ethtool:
            ethtool.set_offload_flag("tcp-segmentation-offload", 0)
        if up is not None:
            # Each such buffer must fit into the bucket, or the queue cuts it, at a higher cost.
            here.link("set", index=end, gso_max_segs=min(MAX_SEGMENTS, shape(up)["burst"] // PACKET))
            with needing("sch_tbf"):
                here.tc("add", "tbf", end, **shape(up))
        here.link("set", index=end, state="up")


@contextmanager
def needing(module: str) -> Iterator[None]:
    """Name the kernel module in the error if the kernel refuses, as its own error does not."""
    try:
        yield
    except Exception as error:
        raise RuntimeError(f"it needs the kernel module {module}, which refused: {error}") from error


def address(rank: int) -> str:
    return f"10.77.{(rank + 1) // 256}.{(rank + 1) % 256}"


def shape(bits: int) -> dict[str, int]:
    """The token bucket for a rate of `bits` per second."""
    rate = bits // 8
    # 2 ms of the rate. Lower: late timers reduce the rate. Higher: after a pause, more bytes pass without delay.
    burst = max(PACKET, rate // 500)
    # The queue has room for 50 ms, or at low rates for the ten packets of TCP's initial window.
    return {"rate": rate, "burst": burst, "limit": burst + max(10 * PACKET, rate // 20)}


def run(command: list[str], namespaces: list[str]) -> int:
    environment = os.environ | {VARIABLE: ":".join(namespaces)}
    # Python ignores SIGPIPE, which the command would inherit.
    try:
        started = os.posix_spawnp(command[0], command, environment, setsigdef=[signal.SIGPIPE])
    except OSError as error:
        return failed(f"{command[0]}: {error}")
    on_signals(forwarding_to(started))
    while True:
        ended, status = os.wait()  # the first process of a PID namespace also inherits the orphans in it
        if ended == started:
            return exit_code(status)


def forwarding_to(process: int) -> Handler:
    def handle(number: int, frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(process, number)

    return handle


def on_signals(handle: Handler) -> None:
    for number in FORWARDED:
        signal.signal(number, handle)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)


def exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code  # as a shell reports a signal


def system_call(name: str, *arguments: int) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
