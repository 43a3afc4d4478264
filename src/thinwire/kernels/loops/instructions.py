"""Vector instructions as LLVM code, where the compiler does not find them by itself."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic

FLOAT, BYTE, INT = ir.FloatType(), ir.IntType(8), ir.IntType(32)

Generated = tuple[Any, Callable[[Any, Any, Any, Any], Any]]  # a signature, and the function that generates its code


def intrinsic_of(write: Callable[..., Generated]) -> Any:
    """A function that loops can call; the first parameter (numba's typing context) is not part of the call."""
    return intrinsic(write)


class Instructions:
    """Generates code for `width` adjacent entries in the arrays of a signature."""

    def __init__(self, width: int, context: Any, builder: Any, signature: Any) -> None:
        self.width, self.context, self.builder, self.signature = width, context, builder, signature

    def pointer(self, position: int, array: Any, i: Any, kind: Any) -> Any:
        """A pointer to entry i of the array argument at this position."""
        view = self.context.make_array(self.signature.args[position])(self.context, self.builder, array)
        return self.builder.bitcast(self.builder.gep(view.data, [i]), kind.as_pointer())

    def repeated(self, value: Any) -> Any:
        vector = ir.Constant(ir.VectorType(value.type, self.width), ir.Undefined)
        first = self.builder.insert_element(vector, value, ir.Constant(INT, 0))
        zeros = ir.Constant(ir.VectorType(INT, self.width), [0] * self.width)
        return self.builder.shuffle_vector(first, vector, zeros)

    def call(self, name: str, result: Any, argument: Any) -> Any:
        """Call an LLVM intrinsic with one argument."""
        kind = ir.FunctionType(result, [argument.type])
        function = get_or_insert_function(self.builder.module, kind, name)  # type: ignore[no-untyped-call]  # numba's
        return self.builder.call(function, [argument])


def _bitcast(source: Any, result: Any, kind: Any) -> Any:
    def write(typing: Any, number: Any) -> Generated:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.bitcast(arguments[0], kind)

        return result(source), code

    return intrinsic_of(write)


bits_of = _bitcast(types.float32, types.int32, INT)  # (number)
float_of = _bitcast(types.int32, types.float32, FLOAT)  # (bits)
