"""torch's meshes of processes, for replicas that are split over several."""

from typing import Any

from torch.distributed.device_mesh import init_device_mesh

from .process_group import ProcessGroupTransport
from .transport import Transport


def mesh_of(world: Transport, kind: str, devices: int) -> Any:
    """Of the processes of this replica, out of all: ranks beside each other are one."""
    if not isinstance(world, ProcessGroupTransport):
        raise ValueError(
            "a torch mesh is made of processes, and these ranks are threads of one: launch them with torchrun, or with "
            "`thinwire run --transport processes`"
        )
    whole = init_device_mesh(kind, (world.size // devices, devices), mesh_dim_names=("replica", "device"))
    return whole["device"]
