"""What torch's DDP does itself: wrapping a model, and averaging a bucket."""

from inspect import signature
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from .process_group import ProcessGroupTransport
from .transport import Transport

GradBucket = dist.GradBucket  # type: ignore[attr-defined]  # the type that DDP expects in its hook's signature
# DDP's argument that synchronizes buffers; torch 2.13 renamed it. It is off: each rank keeps its own buffers, such as
# batch norm statistics, so that only the method's messages use the link.
BUFFER_ARGUMENTS = ("forward_sync_buffers", "broadcast_buffers")
LOCAL_BUFFERS: dict[str, Any] = {
    next(name for name in BUFFER_ARGUMENTS if name in signature(DistributedDataParallel).parameters): False
}


def ddp_of(model: nn.Module, transport: Transport) -> DistributedDataParallel | None:
    """The model wrapped in torch's DDP; None if the ranks are not processes or there is only one."""
    if not isinstance(transport, ProcessGroupTransport) or transport.size == 1:
        return None
    return DistributedDataParallel(model, process_group=transport.group, **LOCAL_BUFFERS)


def averaged_bucket(ddp: DistributedDataParallel, bucket: Any) -> Future[Tensor]:
    """All-reduce a bucket as DDP does without a hook."""
    averaged: Future[Tensor] = allreduce_hook(ddp.process_group, bucket)
    return averaged
