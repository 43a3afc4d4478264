"""What a replica knows of itself and of the others."""

from typing import Any

import torch

from ..transports import Transport, mesh_of
from .contract import Contract
from .dataset_shares import Share
from .devices import LogicalDevice
from .primitives import Primitives


class Context(Primitives):
    """One replica's view: its number, its devices, and what it can ask of the others."""

    def __init__(
        self,
        world: Transport,  # to all ranks
        replicas: Transport,  # to the same device of all replicas
        devices: Contract | None,  # between all devices of this replica, if these are processes of their own
        contract: Contract,
        device: torch.device,
        devices_per_replica: int,
    ) -> None:
        super().__init__(replicas, contract)
        self.device, self.devices_per_replica = device, devices_per_replica
        self._world, self._devices = world, devices
        self._mesh: Any = None

    def __repr__(self) -> str:
        return f"<replica {self.rank} of {self.num_replicas}>"

    def per_replica_batch_size(self, batch_size: int) -> int:
        """A replica's share of a batch over all of them; ValueError if they cannot have the same."""
        if batch_size < 1 or batch_size % self.num_replicas:
            raise ValueError(f"a batch of {batch_size} cannot be divided evenly among {self.num_replicas} replicas")
        return batch_size // self.num_replicas

    def share(self, examples: Any) -> Share:
        """This replica's part of a dataset or a list: as many examples for each, and none for two."""
        return Share(examples, self.rank, self.num_replicas)

    def logical_device(self, index: int) -> LogicalDevice:
        """One of this replica's devices, to place parts of a model on."""
        if not 0 <= index < self.devices_per_replica:
            raise ValueError(
                f"there is no logical device {index}: a replica has {self.devices_per_replica}, "
                "Replicator(devices_per_replica=...) says how many"
            )
        device = self.device
        if self._devices is None and device.type != "cpu":  # one process has them all, from its own on
            device = torch.device(device.type, (device.index or 0) + index)
        return LogicalDevice(index, device, self._devices)

    @property
    def mesh(self) -> Any:
        """A torch DeviceMesh of this replica's processes, for DTensor's plans; None if one process is all of it."""
        if self._devices is None:
            return None
        if self._mesh is None:
            self._mesh = mesh_of(self._world, self.device.type, self.devices_per_replica)
        return self._mesh
