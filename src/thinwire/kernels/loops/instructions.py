"""What is done to many entries at once, where the compiler left to itself does not find how."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic

FLOAT, BYTE, INT = ir.FloatType(), ir.IntType(8), ir.IntType(32)

Made = tuple[Any, Callable[[Any, Any, Any, Any], Any]]  # a signature, and what writes the code for it


def made(write: Callable[..., Made]) -> Any:
    """A function that loops can call; numba types it with the first argument, which calls do not have."""
    return intrinsic(write)


class Instructions:
    """Writes code for so many entries that lie next to each other in the arrays of a signature."""

    def __init__(self, width: int, context: Any, builder: Any, signature: Any) -> None:
        self.width, self.context, self.builder, self.signature = width, context, builder, signature

    def place(self, position: int, array: Any, i: Any, kind: Any) -> Any:
        """Where the entries of this argument are, from i on."""
        made = self.context.make_array(self.signature.args[position])(self.context, self.builder, array)
        return self.builder.bitcast(self.builder.gep(made.data, [i]), kind.as_pointer())

    def repeated(self, value: Any) -> Any:
        vector = ir.Constant(ir.VectorType(value.type, self.width), ir.Undefined)
        first = self.builder.insert_element(vector, value, ir.Constant(INT, 0))
        zeros = ir.Constant(ir.VectorType(INT, self.width), [0] * self.width)
        return self.builder.shuffle_vector(first, vector, zeros)

    def call(self, name: str, gives: Any, given: Any) -> Any:
        """One of LLVM's own functions, of one argument."""
        kind = ir.FunctionType(gives, [given.type])
        function = get_or_insert_function(self.builder.module, kind, name)  # type: ignore[no-untyped-call]  # numba's
        return self.builder.call(function, [given])


def _as_other(of: Any, gives: Any, kind: Any) -> Any:
    def write(typing: Any, number: Any) -> Made:
        def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            return builder.bitcast(given[0], kind)

        return gives(of), code

    return made(write)


bits_of = _as_other(types.float32, types.int32, INT)  # (number)
float_of = _as_other(types.int32, types.float32, FLOAT)  # (bits)
