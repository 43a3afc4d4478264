"""The communication hook of a DDP module.

DDP takes one hook and cannot remove it. So thinwire registers one hook per module, and attaching or detaching changes
what that hook does.
"""

import weakref
from collections.abc import Callable
from inspect import signature
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from .process_group import ProcessGroupTransport
from .transport import Transport

ATTRIBUTE = "_thinwire_hook"
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


class BucketHook:
    """Passes DDP's buckets to the attached `exchange`; without one, all-reduces them as DDP does by default."""

    def __init__(self, ddp: DistributedDataParallel) -> None:
        self.exchange: Callable[[Any], Future[Tensor]] | None = None
        self.ddp = weakref.ref(ddp)  # DDP references this hook from C++, where Python's garbage collector cannot see it
        try:
            ddp.register_comm_hook(None, self.hook)
        except RuntimeError as error:
            raise ValueError(f"this DDP module has another communication hook: {error}") from None

    @classmethod
    def of(cls, ddp: DistributedDataParallel) -> "BucketHook":
        """The hook on this module, registered now if it has none."""
        if not hasattr(ddp, ATTRIBUTE):
            object.__setattr__(ddp, ATTRIBUTE, cls(ddp))
        hook: BucketHook = getattr(ddp, ATTRIBUTE)
        return hook

    def hook(self, _: Any, bucket: dist.GradBucket) -> Future[Tensor]:  # type: ignore[name-defined]  # DDP checks this
        if self.exchange is not None:
            return self.exchange(bucket)
        ddp = self.ddp()
        assert ddp is not None, "DDP itself calls this hook"
        averaged: Future[Tensor] = allreduce_hook(ddp.process_group, bucket)
        return averaged
