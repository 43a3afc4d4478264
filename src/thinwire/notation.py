"""One notation for Python, the command line, run files and reports: parse(repr(x)) == x."""

import ast
import difflib
from inspect import isabstract
from typing import Any

from . import codecs, reducers, strategies, topologies
from . import entropy as coding
from .core import Peers
from .core.described import Described

LONGEST = 100_000  # characters; most notations have a few hundred, the weights of 64 ranks almost this many


def vocabulary() -> dict[str, type[Described]]:
    """Every class that a notation can name: the public ones whose repr is a notation."""
    modules = (codecs, coding, reducers, strategies, topologies)
    public = [getattr(module, name) for module in modules for name in module.__all__]
    classes = [value for value in (*public, Peers) if isinstance(value, type) and issubclass(value, Described)]
    return {cls.__name__: cls for cls in classes if not isabstract(cls)}


class NotationError(ValueError):
    """A notation that cannot be parsed. The message marks the position of the error.

    Examples:
        >>> from thinwire import NotationError, parse
        >>> try:
        ...     parse("ErrorFeedback(TopK(1.5))")
        ... except NotationError as error:
        ...     print(str(error).splitlines()[-1])
                        ^^^^^^^^^
    """

    def __init__(self, problem: str, text: str, row: int, start: int, end: int) -> None:
        line = text.splitlines()[row - 1] if text else ""
        super().__init__(f"{problem}\n  {line}\n  {' ' * start}{'^' * max(1, end - start)}")

    @classmethod
    def at(cls, problem: str, text: str, node: ast.expr) -> "NotationError":
        line = text.splitlines()[node.lineno - 1]
        one_line = node.end_lineno == node.lineno
        # A node's columns count bytes.
        start = len(line.encode()[: node.col_offset].decode())
        end = len(line.encode()[: node.end_col_offset].decode()) if one_line else len(line)
        return cls(problem, text, node.lineno, start, end)


def parse(text: str) -> Any:
    """Build the object that `text` describes: calls of known names with literals. Nothing is evaluated.

    Examples:
        >>> from thinwire import parse
        >>> method = parse("ErrorFeedback(Chain(TopK(0.01), Quantize(8)))")
        >>> method
        ErrorFeedback(Chain(TopK(0.01), Quantize(8)))
        >>> parse(repr(method)) == method
        True
    """
    text = text.strip()
    if not text:
        raise NotationError("not a notation: it is empty; 'thinwire methods' lists the known methods", text, 1, 0, 1)
    length = len("".join(text.split()))
    if length > LONGEST:
        raise ValueError(f"the notation has {length} characters; the limit is {LONGEST}")
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        row, column = min(error.lineno or 1, len(text.splitlines()) or 1), max(0, (error.offset or 1) - 1)
        raise NotationError(f"not a notation: {error.msg}", text, row, column, column + 1) from None
    except (RecursionError, MemoryError, ValueError):
        raise ValueError("not a notation: it is nested too deeply, or has invalid characters") from None
    return _Builder(text).build(tree)


class _Builder:
    def __init__(self, text: str) -> None:
        self.text, self.known = text, vocabulary()

    def build(self, node: ast.expr) -> Any:
        match node:
            case ast.Call(func=ast.Name()):
                return self._call(node, node.func)  # type: ignore[arg-type]  # the pattern checks it
            case ast.Constant(value=bool() | int() | float() | str() | None):
                return node.value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
                return -value
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                return tuple(map(self.build, elements))
            case ast.Name(id=name) if name in self.known:
                raise NotationError.at(f"{name} needs parentheses: {name}(...)", self.text, node)
            case ast.Name(id=name):
                raise NotationError.at(f"unknown name {name!r}; strings need quotes", self.text, node)
        raise NotationError.at("only known names, numbers, strings and tuples are allowed here", self.text, node)

    def _call(self, node: ast.Call, function: ast.Name) -> Any:
        cls = self.known.get(function.id)
        if cls is None:
            by_lower = {name.lower(): name for name in self.known}
            near = difflib.get_close_matches(function.id.lower(), by_lower, n=1, cutoff=0.5)
            hint = f"did you mean {by_lower[near[0]]}?" if near else f"known: {', '.join(sorted(self.known))}"
            raise NotationError.at(f"unknown name {function.id!r} ({hint})", self.text, function)
        keywords = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                raise NotationError.at("** is not allowed in a notation", self.text, keyword.value)
            keywords[keyword.arg] = self.build(keyword.value)
        arguments = [self.build(argument) for argument in node.args]
        try:
            return cls(*arguments, **keywords)
        except NotationError:
            raise
        except (TypeError, ValueError) as error:
            problem = str(error).replace(f"{function.id}.__init__()", function.id)
            if "not supported between" in problem:  # a comparison in the constructor
                problem = f"{function.id} cannot take {', '.join(map(repr, (*arguments, *keywords.values())))}"
            raise NotationError.at(problem, self.text, node) from None
