"""Transports: they say it and count it. The only place that knows torch.distributed."""

from .collectives import Collectives
from .ddp import BucketHook
from .meter import Meter
from .simulated import LockStepError, Simulated
from .worker import Worker

__all__ = ["BucketHook", "Collectives", "LockStepError", "Meter", "Simulated", "Worker"]
