"""The hook that a DDP module keeps for life: DDP takes one and never gives it back, so its content changes instead."""

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
# Buffers, such as running means, stay each rank's own: only what a method says goes over the link. Since torch 2.13,
# that has another name.
BUFFERS = ("forward_sync_buffers", "broadcast_buffers")
OWN_BUFFERS: dict[str, Any] = {
    next(name for name in BUFFERS if name in signature(DistributedDataParallel).parameters): False
}


def ddp_of(model: nn.Module, transport: Transport) -> DistributedDataParallel | None:
    """The model in torch's DDP, if the ranks are processes."""
    if not isinstance(transport, ProcessGroupTransport) or transport.size == 1:
        return None
    return DistributedDataParallel(model, process_group=transport.group, **OWN_BUFFERS)


class BucketHook:
    """Hands DDP's buckets to whoever is attached, or averages them as DDP would by itself."""

    def __init__(self, ddp: DistributedDataParallel) -> None:
        self.exchange: Callable[[Any], Future[Tensor]] | None = None
        self.ddp = weakref.ref(ddp)  # which holds this hook where Python's collector cannot see it
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
        assert ddp is not None, "whoever calls a hook has it"
        averaged: Future[Tensor] = allreduce_hook(ddp.process_group, bucket)
        return averaged
