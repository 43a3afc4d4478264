"""Reads the Python files of CIFAR-10, which are pickles, without executing arbitrary code.

A pickle is a program for a stack machine, and unpickling runs it with access to everything in Python. The interpreter
here supports only the instructions that these files need: text, numbers, lists, one dictionary, one array of bytes.
"""

import pickletools
from pathlib import Path
from typing import Any

import numpy as np

from thinwire.lab.tasks.datasets.files import Array

MARK = object()
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
VALUES = {"BINSTRING", "SHORT_BINSTRING", "BINUNICODE", "BININT", "BININT1", "BININT2"}
ARRAY, ARRAY_TYPE, DTYPE = "numpy.core.multiarray _reconstruct", "numpy ndarray", "numpy dtype"
ADVICE = (
    "it is not the file of the Python version of CIFAR-10; the binary version, cifar-10-batches-bin/, can be read too"
)


class Unfinished:
    """An array or a dtype, between the instruction that creates it and the one that fills it."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.content: Array | None = None


def read(path: Path) -> tuple[Array, Array]:
    """The `data` and the `labels` of a batch."""
    try:
        batch = interpret(path.read_bytes())
        data: Array | None = batch["data"].content
        labels = np.frombuffer(bytes([*batch["labels"]]), np.uint8)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is damaged, or {ADVICE} ({type(error).__name__}: {error})") from None
    if data is None:
        raise ValueError(f"{path} is damaged, or {ADVICE} (its array is empty)")
    return data, labels


def interpret(program: bytes) -> dict[str, Any]:
    """Run the program and return the dictionary that it makes."""
    stack: list[Any] = []
    memo: dict[Any, Any] = {}
    for instruction, argument, position in pickletools.genops(program):
        name = instruction.name
        if name in CONSTANTS:
            stack.append(CONSTANTS[name])
        elif name in VALUES:
            stack.append(argument)
        elif name == "MARK":
            stack.append(MARK)
        elif name in ("BINPUT", "LONG_BINPUT"):
            memo[argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif name == "EMPTY_DICT":
            stack.append({})
        elif name == "EMPTY_LIST":
            stack.append([])
        elif name in ("APPEND", "APPENDS"):
            items = [stack.pop()] if name == "APPEND" else since_mark(stack)
            stack[-1].extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = [stack.pop(-2), stack.pop()] if name == "SETITEM" else since_mark(stack)
            stack[-1].update(zip(items[::2], items[1::2], strict=True))
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            length = int(name[-1])
            stack[-length:] = [tuple(stack[-length:])]
        elif name == "TUPLE":
            stack.append(tuple(since_mark(stack)))
        elif name == "GLOBAL" and argument in (ARRAY, ARRAY_TYPE, DTYPE):
            stack.append(argument)
        elif name == "REDUCE":
            stack[-2:] = [created(*stack[-2:])]
        elif name == "BUILD":
            fill(stack[-2], stack.pop())
        elif name == "STOP":
            return dict(stack.pop())
        elif name != "PROTO":
            raise ValueError(f"{name} {argument!r:.60} at byte {position} is not supported")
    raise ValueError("it has no STOP instruction")


def since_mark(stack: list[Any]) -> list[Any]:
    """Pop everything that was pushed since the last mark."""
    taken = []
    while (item := stack.pop()) is not MARK:  # an IndexError, if there is none
        taken.append(item)
    return taken[::-1]


def created(function: str, arguments: tuple[Any, ...]) -> Unfinished:
    if function == ARRAY and arguments[0] == ARRAY_TYPE:
        return Unfinished("array")
    if function == DTYPE and arguments[0] == "u1":
        return Unfinished("bytes")
    raise ValueError(f"{function}{arguments!r:.60} is not an array of bytes")


def fill(unfinished: Unfinished, state: tuple[Any, ...]) -> None:
    if unfinished.kind != "array":
        return  # byte order and alignment, which do not matter for bytes
    _, shape, dtype, by_columns, content = state
    if dtype.kind != "bytes":
        raise ValueError("its array is not one of bytes")
    values = np.frombuffer(content.encode("latin-1"), np.uint8)
    unfinished.content = values.reshape(shape, order="F" if by_columns else "C")
