"""Described objects: frozen dataclasses that print as the expression that creates them."""

from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass, replace
from typing import Any, TypeVar


class Described:
    """A frozen dataclass whose repr is the notation that `thinwire.parse` reads."""

    def __repr__(self) -> str:
        arguments = []
        for i, field in enumerate(fields(self)):  # type: ignore[arg-type]  # every subclass is a dataclass
            value = getattr(self, field.name)
            if value != field.default:
                by_position = i == 0 or field.default is MISSING
                arguments.append(repr(value) if by_position else f"{field.name}={value!r}")
        return f"{type(self).__name__}({', '.join(arguments)})"


def parts_of(described: Described) -> Iterator[Described]:
    """A described object and all described objects inside it.

    Examples:
        >>> from thinwire import parse
        >>> from thinwire.inspect import parts_of
        >>> for part in parts_of(parse("ErrorFeedback(Chain(TopK(0.01), Quantize(8)))")):
        ...     print(type(part).__name__)
        ErrorFeedback
        Chain
        TopK
        Quantize
    """
    yield described
    for field in fields(described):  # type: ignore[arg-type]  # every subclass is a dataclass
        value = getattr(described, field.name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Described):
                yield from parts_of(part)


T = TypeVar("T", bound=Described)


def map_fields(described: T, kinds: Any, change: Callable[[Any], Any]) -> T:
    """A copy of a dataclass with `change` applied to its fields of these kinds; itself if nothing changes."""
    if not is_dataclass(described):
        return described
    values = {field.name: getattr(described, field.name) for field in fields(described)}
    before = {name: value for name, value in values.items() if isinstance(value, kinds)}
    after = {name: change(value) for name, value in before.items()}
    changed = {name: value for name, value in after.items() if value != before[name]}
    return replace(described, **changed) if changed else described
