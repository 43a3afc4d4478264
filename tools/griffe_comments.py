"""A griffe extension: comments describe fields and constants in the API pages.

    ratio: float  # of all entries; lower: fewer bytes

The comments of a class's fields become the list of its parameters (of a dataclass) or attributes. The comment of a
module's constant, behind it or above it, becomes its docstring. Griffe alone takes strings below a name only.
"""

import io
import tokenize
from functools import cache
from pathlib import Path
from typing import Any

import griffe


class CommentsAsDocstrings(griffe.Extension):
    def on_attribute_instance(self, *, node: Any, attr: griffe.Attribute, **kwargs: Any) -> None:
        """Describe a constant of a module."""
        if attr.docstring is None and attr.parent is not None and attr.parent.is_module:
            text = _behind(attr) or _above(attr)
            if text:
                attr.docstring = griffe.Docstring(_sentence(text), lineno=attr.lineno, parent=attr)

    def on_class_members(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        """Describe the fields of a class in its docstring."""
        fields = [member for member in cls.members.values() if isinstance(member, griffe.Attribute)]
        described = {f.name: text for f in fields if not f.name.startswith("_") and (text := _behind(f))}
        if not described or cls.docstring is None:
            return
        heading = "Args" if "dataclass" in cls.labels or _is_dataclass(cls) else "Attributes"
        lines = [f"    {name}: {_sentence(text)}" for name, text in described.items()]
        before, examples, after = cls.docstring.value.partition("\nExamples:")  # the examples come last
        cls.docstring.value = "\n".join([f"{before.rstrip()}\n", f"{heading}:", *lines, f"{examples}{after}"])


def _is_dataclass(cls: griffe.Class) -> bool:
    return any(decorator.callable_path.endswith("dataclass") for decorator in cls.decorators)


def _sentence(text: str) -> str:
    """As Markdown: with a capital, and with what looks like a tag escaped outside code."""
    pieces = (text[0].upper() + text[1:]).split("`")
    return "`".join(piece.replace("<", "&lt;") if i % 2 == 0 else piece for i, piece in enumerate(pieces))


def _behind(attr: griffe.Attribute) -> str:
    """The comment on the lines of an attribute, unless it is for a linter."""
    if not isinstance(attr.filepath, Path) or attr.lineno is None:
        return ""
    comments = _comments(attr.filepath)
    found = [comments.get(line, "") for line in range(attr.lineno, (attr.endlineno or attr.lineno) + 1)]
    return " ".join(text for text in found if text and not text.startswith(("type:", "noqa")))


def _above(attr: griffe.Attribute) -> str:
    """The comment on the lines above an attribute."""
    if not isinstance(attr.filepath, Path) or attr.lineno is None:
        return ""
    first, lines, comments = attr.lineno, _lines(attr.filepath), _comments(attr.filepath)
    while first > 1 and lines[first - 2].startswith("#"):
        first -= 1
    return " ".join(comments[line] for line in range(first, attr.lineno))


@cache
def _lines(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines()


@cache
def _comments(path: Path) -> dict[int, str]:
    """The comments of a file, by line."""
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline)
    return {t.start[0]: t.string.lstrip("# ").rstrip() for t in tokens if t.type == tokenize.COMMENT}
