from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Self

from torch import Tensor

from ..core import Codec, Conversation, Parameter, Reducer, State
from ..core.described import Described
from .average import Average, as_reducer
from .wrapping import Wrapping

KINDS = ("conv", "dense", "recurrent", "embedding", "attention", "norm", "other")


@dataclass(frozen=True, repr=False)
class When(Described):
    """One case of `Choose`: a reducer for the parameters that satisfy every given condition."""

    then: Codec | Reducer
    kinds: tuple[str, ...] = ()  # of the layer that owns the parameter; none given: all
    names: tuple[str, ...] = ()  # patterns such as "classifier.*"; none given: all
    min_dim: int = 0  # 2: matrices and up, no biases or norms
    max_dim: int | None = None  # 1: biases and norms only
    min_size: int = 0  # in elements
    max_size: int | None = None

    def __post_init__(self) -> None:
        as_reducer(self.then)
        for field in ("kinds", "names"):
            value = getattr(self, field)
            value = (value,) if isinstance(value, str) else tuple(value)
            object.__setattr__(self, field, value)
        for kind in self.kinds:
            if kind not in KINDS:
                raise ValueError(f"unknown kind of layer {kind!r}; known: {', '.join(KINDS)}")

    def matches(self, parameter: Parameter) -> bool:
        size = parameter.like.numel()
        return (
            (not self.kinds or parameter.kind in self.kinds)
            and (not self.names or any(fnmatchcase(parameter.name, pattern) for pattern in self.names))
            and parameter.like.ndim >= self.min_dim
            and (self.max_dim is None or parameter.like.ndim <= self.max_dim)
            and size >= self.min_size
            and (self.max_size is None or size <= self.max_size)
        )


@dataclass(frozen=True, repr=False, init=False)
class Choose(Wrapping):
    """Per-parameter choice of a reducer: the one of the first matching `When`, or else `otherwise`.

    Examples:
        >>> import torch
        >>> from thinwire import Cast, Choose, PowerSGD, When
        >>> from thinwire.extend import Parameter
        >>> method = Choose(When(PowerSGD(2), kinds="dense", min_dim=2), otherwise=Cast("float16"))
        >>> for name, shape in (("fc.weight", (512, 512)), ("fc.bias", (512,))):
        ...     print(name, method.specialize(Parameter(name, "dense", torch.empty(shape, device="meta"))))
        fc.weight PowerSGD(2)
        fc.bias Average(Cast('float16'))
    """

    bounded: ClassVar[bool] = True  # specialize returns the chosen reducer, which is checked there

    cases: tuple[When, ...]
    otherwise: Codec | Reducer = Average()

    def __init__(self, *cases: When, otherwise: Codec | Reducer = Average()) -> None:
        if not cases:
            raise ValueError("Choose needs at least one When(...)")
        for case in cases:
            if not isinstance(case, When):
                raise ValueError(f"Choose takes cases of When(...), not {case!r}")
        as_reducer(otherwise)
        object.__setattr__(self, "cases", cases)
        object.__setattr__(self, "otherwise", otherwise)

    def __repr__(self) -> str:
        arguments = list(map(repr, self.cases))
        if self.otherwise != Average():
            arguments.append(f"otherwise={self.otherwise!r}")
        return f"Choose({', '.join(arguments)})"

    def map_inner(self, change: Callable[[Any], Any]) -> Self:
        cases = [replace(case, then=change(case.then)) for case in self.cases]
        return type(self)(*cases, otherwise=change(self.otherwise))

    def specialize(self, parameter: Parameter) -> Reducer:
        chosen = next((case.then for case in self.cases if case.matches(parameter)), self.otherwise)
        return as_reducer(chosen).specialize(parameter)

    def diagnose(self, parameters: Collection[Parameter]) -> list[str]:
        idle = [case for case in self.cases if not any(map(case.matches, parameters))]
        return [f"{case!r} matches no parameter of this model" for case in idle]

    def init(self, like: Tensor, seed: int) -> State:
        raise TypeError("Choose has no state: call specialize(parameter) for the reducer of a parameter first")

    def reduce(self, x: Tensor, state: State) -> Conversation:
        raise TypeError("Choose cannot reduce: call specialize(parameter) for the reducer of a parameter first")
