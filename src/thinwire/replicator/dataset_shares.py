"""A replica's part of examples that all have."""

from collections.abc import Sequence
from typing import Any


class Share(Sequence[Any]):
    """Every so many-th example, from one on; all replicas have as many, and what is left over at the end nobody has."""

    def __init__(self, items: Any, replica: int, replicas: int) -> None:  # with a length, and an item for each number
        if not (hasattr(items, "__len__") and hasattr(items, "__getitem__")):
            raise TypeError(
                f"a share is of a dataset or a list, with a length and an example for each number, and not of a "
                f"{type(items).__name__}; a DataLoader is made of a share"
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
            raise IndexError(f"a share of {len(self)} examples has none with the number {index}")
        return self.items[index % len(self) * self.replicas + self.replica]
