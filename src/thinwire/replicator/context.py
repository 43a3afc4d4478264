"""The context of a replica: its rank, its devices, and collectives over all replicas."""

from typing import Any

import torch

from ..transports import Transport, mesh_of
from .contract import Contract
from .dataset_shares import Share
from .devices import LogicalDevice
from .primitives import Primitives


class Context(Primitives):
    """What a step function receives: the replica's rank and devices, and collectives over all replicas."""

    def __init__(
        self,
        world: Transport,  # between all ranks
        replicas: Transport,  # between the same device of all replicas
        devices: Contract | None,  # between the devices of this replica, if each is a rank
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
        """The batch size of one replica, given the total; ValueError if it does not divide evenly."""
        if batch_size < 1 or batch_size % self.num_replicas:
            raise ValueError(f"a batch of {batch_size} cannot be divided evenly by {self.num_replicas} replicas")
        return batch_size // self.num_replicas

    def share(self, examples: Any) -> Share:
        """This replica's shard of a dataset or a list: disjoint shards of equal length."""
        return Share(examples, self.rank, self.num_replicas)

    def logical_device(self, index: int) -> LogicalDevice:
        """One of this replica's devices, to place parts of a model on."""
        if not 0 <= index < self.devices_per_replica:
            raise ValueError(
                f"there is no logical device {index}: a replica has {self.devices_per_replica}; "
                "Replicator(devices_per_replica=...) sets the number"
            )
        device = self.device
        if self._devices is None and device.type != "cpu":  # this process has all of them, starting at its own
            device = torch.device(device.type, (device.index or 0) + index)
        return LogicalDevice(index, device, self._devices)

    @property
    def mesh(self) -> Any:
        """A torch DeviceMesh of this replica's processes, for DTensor's plans; None if the replica is one process."""
        if self._devices is None:
            return None
        if self._mesh is None:
            self._mesh = mesh_of(self._world, self.device.type, self.devices_per_replica)
        return self._mesh
