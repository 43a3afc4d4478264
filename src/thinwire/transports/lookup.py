"""Chooses the transport for the environment: threads of one process, torch.distributed, or a single rank."""

import os
from typing import Any

import torch
import torch.distributed as dist

from .in_process import InProcessCluster, InProcessTransport, current_transport
from .process_group import ProcessGroupTransport
from .transport import Transport


def transport_in(group: Any = None, device: torch.device | None = None, timeout: float | None = None) -> Transport:
    """A new transport for the ranks of a torch.distributed group or of another transport; by default, for all ranks."""
    existing = current_transport() if group is None else group
    return (
        existing.duplicate(device, timeout)
        if isinstance(existing, Transport)
        else ProcessGroupTransport(group, device, timeout)
    )


def default_transport() -> tuple[Transport, bool]:
    """A CPU transport for all launched ranks, and whether this call initialized torch.distributed.

    The ranks are threads of an `InProcessCluster`, or processes that torchrun started; otherwise this is the only rank.
    """
    if current_transport() is not None:
        return transport_in(), False
    if dist.is_initialized():
        return ProcessGroupTransport(backend="gloo"), False
    if not dist.is_torchelastic_launched() and not {"RANK", "WORLD_SIZE", "MASTER_ADDR"} <= os.environ.keys():
        return InProcessTransport(InProcessCluster(1), 0), False
    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    return ProcessGroupTransport(backend="gloo"), True


def end_processes() -> None:
    """Destroy the default process group, if there is one."""
    if dist.is_initialized():
        dist.destroy_process_group()
