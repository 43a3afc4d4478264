"""Transports: they say it and count it. The only place that knows torch.distributed."""

from .collectives import Collectives, Unreachable
from .ddp import BucketHook
from .meeting import Decision, Meeting, Note, PeerLostError, told_of
from .meter import Meter
from .simulated import LockStepError, Simulated
from .worker import Worker

__all__ = [
    "BucketHook",
    "Collectives",
    "Decision",
    "LockStepError",
    "Meeting",
    "Meter",
    "Note",
    "PeerLostError",
    "Simulated",
    "Unreachable",
    "Worker",
    "told_of",
]
