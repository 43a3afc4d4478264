"""Transports: they say it and count it. The only place that knows torch.distributed."""

from .collectives import Collectives, Unreachable
from .ddp import BucketHook, ddp_of
from .draws import Draws, seed_all, seed_of
from .exchange import Post
from .finding import end_processes, transport_here, transport_in
from .in_process import Local, StoppedError, World, here
from .meeting import Decision, Meeting, Note, PeerLostError, told_of
from .meshes import mesh_of
from .meter import Meter
from .simulated import LockStepError, Simulated
from .transport import Transport
from .worker import Queue, Worker

__all__ = [
    "BucketHook",
    "Collectives",
    "Decision",
    "Draws",
    "Local",
    "LockStepError",
    "Meeting",
    "Meter",
    "Note",
    "PeerLostError",
    "Post",
    "Queue",
    "Simulated",
    "StoppedError",
    "Transport",
    "Unreachable",
    "Worker",
    "World",
    "ddp_of",
    "end_processes",
    "here",
    "mesh_of",
    "seed_all",
    "seed_of",
    "told_of",
    "transport_here",
    "transport_in",
]
