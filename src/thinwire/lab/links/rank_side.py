"""A rank's own side of a link: move into its namespace, read its interface's counters."""

import os
from pathlib import Path

from thinwire.lab.links import holder


def inside() -> bool:
    """Whether this process was started in a network of namespaces."""
    return holder.VARIABLE in os.environ


def enter(rank: int) -> None:
    """Move this thread into the rank's namespace, so that gloo uses the link; does nothing without a link.

    Sockets stay in the namespace they were opened in: an earlier connection to torchrun's store does not use the link.
    """
    if not inside():
        return
    opened = os.open(os.environ[holder.VARIABLE].split(":")[rank], os.O_RDONLY)
    holder.system_call("setns", opened, holder.NEWNET)
    os.close(opened)
    os.environ["GLOO_SOCKET_IFNAME"] = holder.INTERFACE  # else gloo would resolve the host's name


def counters() -> tuple[int, int]:
    """The bytes that this rank's interface has received and sent, headers included."""
    # /proc/self/net belongs to the main thread.
    for line in Path("/proc/self/net/dev").read_text().splitlines():
        name, _, figures = line.partition(":")
        if name.strip() == holder.INTERFACE:
            return int(figures.split()[0]), int(figures.split()[8])
    raise RuntimeError(f"there is no {holder.INTERFACE} here: this process is not in a rank's namespace")
