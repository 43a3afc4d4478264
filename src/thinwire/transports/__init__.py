"""Transports: deliver messages between ranks and count their bytes. The only layer that knows torch.distributed."""

from .ddp import GradBucket, averaged_bucket, ddp_of
from .failure_agreement import FailureAgreement, FailureReport, PeerLostError, RegroupPlan, describe_failures
from .in_process import InProcessCluster, InProcessTransport, StoppedError, current_transport
from .lookup import default_transport, end_processes, transport_in
from .meshes import mesh_of
from .meter import Meter
from .process_group import ProcessGroupTransport, Unreachable
from .random_state import RandomState, seed_all, seed_of
from .rounds import Post
from .simulated import LockStepError, Simulated
from .transport import Transport
from .worker import Queue, Worker

__all__ = [
    "FailureAgreement",
    "FailureReport",
    "GradBucket",
    "InProcessCluster",
    "InProcessTransport",
    "LockStepError",
    "Meter",
    "PeerLostError",
    "Post",
    "ProcessGroupTransport",
    "Queue",
    "RandomState",
    "RegroupPlan",
    "Simulated",
    "StoppedError",
    "Transport",
    "Unreachable",
    "Worker",
    "averaged_bucket",
    "current_transport",
    "ddp_of",
    "default_transport",
    "describe_failures",
    "end_processes",
    "mesh_of",
    "seed_all",
    "seed_of",
    "transport_in",
]
