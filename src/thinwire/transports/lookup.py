"""Which transport there is between this rank and the others."""

import os
from typing import Any

import torch
import torch.distributed as dist

from .in_process import InProcessCluster, InProcessTransport, here
from .process_group import ProcessGroupTransport
from .transport import Transport


def transport_in(group: Any = None, device: torch.device | None = None, timeout: float | None = None) -> Transport:
    """A new one in a torch.distributed group, or beside another one; by default, to all ranks that there are."""
    beside = here() if group is None else group
    return (
        beside.another(device, timeout)
        if isinstance(beside, Transport)
        else ProcessGroupTransport(group, device, timeout)
    )


def transport_here() -> tuple[Transport, bool]:
    """One to all ranks that this one was launched with, on CPUs, and whether torch.distributed was started for it.

    They are threads of a `InProcessCluster`, or processes that torchrun has started, or there is no other.
    """
    if here() is not None:
        return transport_in(), False
    if dist.is_initialized():
        return ProcessGroupTransport(backend="gloo"), False
    if not dist.is_torchelastic_launched() and not {"RANK", "WORLD_SIZE", "MASTER_ADDR"} <= os.environ.keys():
        return InProcessTransport(InProcessCluster(1), 0), False
    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    return ProcessGroupTransport(backend="gloo"), True


def end_processes() -> None:
    """End torch.distributed, if it is still there."""
    if dist.is_initialized():
        dist.destroy_process_group()
