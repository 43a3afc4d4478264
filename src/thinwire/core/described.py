"""Descriptions: plain values that print as what one would write to make them."""

from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass, replace
from typing import Any, TypeVar


class Described:
    """A frozen dataclass whose repr is the notation that `thinwire.parse` reads."""

    def __repr__(self) -> str:
        said = []
        for i, field in enumerate(fields(self)):  # type: ignore[arg-type]  # every subclass is a dataclass
            value = getattr(self, field.name)
            if value != field.default:
                by_position = i == 0 or field.default is MISSING
                said.append(repr(value) if by_position else f"{field.name}={value!r}")
        return f"{type(self).__name__}({', '.join(said)})"


def parts_of(what: Described) -> Iterator[Described]:
    """A description and every one inside it.

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
    yield what
    for field in fields(what):  # type: ignore[arg-type]  # every description is a dataclass
        value = getattr(what, field.name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Described):
                yield from parts_of(part)


Whole = TypeVar("Whole", bound=Described)


def map_fields(whole: Whole, kinds: Any, change: Callable[[Any], Any]) -> Whole:
    """A copy of a dataclass with `change` applied to its fields of these kinds; itself if nothing changes."""
    if not is_dataclass(whole):
        return whole
    before = {f.name: getattr(whole, f.name) for f in fields(whole) if isinstance(getattr(whole, f.name), kinds)}
    after = {name: change(part) for name, part in before.items()}
    changed = {name: part for name, part in after.items() if part != before[name]}
    return replace(whole, **changed) if changed else whole
