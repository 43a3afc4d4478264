"""A torch DeviceMesh for replicas that are sharded over several processes."""

from typing import Any

from torch.distributed.device_mesh import init_device_mesh

from .process_group import ProcessGroupTransport
from .transport import Transport


def mesh_of(transport: Transport, kind: str, devices: int) -> Any:
    """The mesh of the processes that form this replica: each replica is `devices` consecutive ranks."""
    if not isinstance(transport, ProcessGroupTransport):
        raise ValueError(
            "a torch DeviceMesh needs processes, and these ranks are threads of one: launch with torchrun, or with "
            "`thinwire run --transport processes`"
        )
    mesh = init_device_mesh(kind, (transport.size // devices, devices), mesh_dim_names=("replica", "device"))
    return mesh["device"]
