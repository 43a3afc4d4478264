"""A replica's shard of a dataset."""

from collections.abc import Sequence
from typing import Any


class Share(Sequence[Any]):
    """Every n-th example of n replicas, from this replica's rank on; the remainder at the end is dropped."""

    def __init__(self, items: Any, replica: int, replicas: int) -> None:  # items: with __len__ and __getitem__
        if not (hasattr(items, "__len__") and hasattr(items, "__getitem__")):
            raise TypeError(
                f"share() takes a dataset or a list, with __len__ and __getitem__, not a {type(items).__name__}; "
                "to use a DataLoader, construct it from the share"
            )
        if len(items) < replicas:
            raise ValueError(f"{len(items)} examples cannot be shared by {replicas} replicas")
        self.items, self.replica, self.replicas = items, replica, replicas

    def __len__(self) -> int:
        return len(self.items) // self.replicas

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is out of range for a share of {len(self)} examples")
        return self.items[index % len(self) * self.replicas + self.replica]
