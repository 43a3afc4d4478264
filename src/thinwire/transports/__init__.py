"""Transports: they say it and count it. The only place that knows torch.distributed."""

from .ddp_bucket_hook import BucketHook, ddp_of
from .failure_agreement import Decision, FailureAgreement, Note, PeerLostError, told_of
from .in_process import InProcessCluster, InProcessTransport, StoppedError, here
from .lookup import end_processes, transport_here, transport_in
from .meshes import mesh_of
from .meter import Meter
from .process_group import ProcessGroupTransport, Unreachable
from .random_state import RandomState, seed_all, seed_of
from .rounds import Post
from .simulated import LockStepError, Simulated
from .transport import Transport
from .worker import Queue, Worker

__all__ = [
    "BucketHook",
    "Decision",
    "FailureAgreement",
    "InProcessCluster",
    "InProcessTransport",
    "LockStepError",
    "Meter",
    "Note",
    "PeerLostError",
    "Post",
    "ProcessGroupTransport",
    "Queue",
    "RandomState",
    "Simulated",
    "StoppedError",
    "Transport",
    "Unreachable",
    "Worker",
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
