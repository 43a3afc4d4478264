"""The base of reducers around complete methods: error feedback, warm-up, a choice for each parameter."""

from ..core import Parameter, Reducer
from .average import as_reducer


class Wrapping(Reducer):
    """A reducer around others, each of which could stand alone.

    `forms` converts the methods inside it, through `map_inner`: to a form with a server, for example.
    """

    @property
    def needs_shape(self) -> bool:
        return any(as_reducer(inner).needs_shape for inner in self.inner_methods)

    def specialize(self, parameter: Parameter) -> Reducer:
        return self.map_inner(lambda inner: as_reducer(inner).specialize(parameter))

    def fuse(self, sizes: tuple[int, ...]) -> Reducer | None:
        before = [as_reducer(inner) for inner in self.inner_methods]
        after = [inner.fuse(sizes) for inner in before]
        if not any(after) or any(b.needs_shape for b, a in zip(before, after, strict=True) if a is None):
            return None  # a reducer that needs its tensor's shape cannot take a fused tensor
        return self.map_inner(lambda inner: as_reducer(inner).fuse(sizes) or inner)
