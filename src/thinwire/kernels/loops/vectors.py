"""What the loops do to many entries at once: 64 or 32 floats in, a bit of each out.

Left to itself, the compiler writes a byte for each entry that is compared, and reads it again; a bit for each is what
processors have instructions for. Sizes are compared as integers: without the sign, the bits of floats are ordered as
their sizes are, and NaN is the largest.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic

FLOAT, INT = ir.FloatType(), ir.IntType(32)
WITHOUT_SIGN = 0x7FFFFFFF


class Lanes:
    """The instructions for so many floats that lie next to each other, from entry i on."""

    def __init__(self, width: int, context: Any, builder: Any, signature: Any, i: Any) -> None:
        self.width, self.context, self.builder, self.signature, self.i = width, context, builder, signature, i

    def load(self, position: int, array: Any) -> Any:
        return self.builder.load(self._place(position, array), align=4)

    def store(self, numbers: Any, position: int, array: Any) -> None:
        self.builder.store(numbers, self._place(position, array), align=4)

    def times(self, numbers: Any, factor: Any) -> Any:
        return self.builder.fmul(numbers, self._repeated(factor))

    def plus(self, numbers: Any, others: Any) -> Any:
        return self.builder.fadd(numbers, others)

    def sizes(self, numbers: Any) -> Any:
        """Their bits without the sign."""
        kind = ir.VectorType(INT, self.width)
        return self.builder.and_(self.builder.bitcast(numbers, kind), ir.Constant(kind, [WITHOUT_SIGN] * self.width))

    def largest(self, sizes: Any) -> Any:
        name = f"llvm.vector.reduce.smax.v{self.width}i32"
        kind = ir.FunctionType(INT, [sizes.type])
        reduce = get_or_insert_function(self.builder.module, kind, name)  # type: ignore[no-untyped-call]  # numba's
        return self.builder.call(reduce, [sizes])

    def at_least(self, sizes: Any, least: Any) -> Any:
        """A bit for each that is as large."""
        bits = self.builder.icmp_signed(">=", sizes, self._repeated(least))
        word = self.builder.bitcast(bits, ir.IntType(self.width))
        return word if self.width == 64 else self.builder.zext(word, ir.IntType(64))

    def _place(self, position: int, array: Any) -> Any:
        made = self.context.make_array(self.signature.args[position])(self.context, self.builder, array)
        place = self.builder.gep(made.data, [self.i])
        return self.builder.bitcast(place, ir.VectorType(FLOAT, self.width).as_pointer())

    def _repeated(self, value: Any) -> Any:
        vector = ir.Constant(ir.VectorType(value.type, self.width), ir.Undefined)
        first = self.builder.insert_element(vector, value, ir.Constant(INT, 0))
        zeros = ir.Constant(ir.VectorType(INT, self.width), [0] * self.width)
        return self.builder.shuffle_vector(first, vector, zeros)


Made = tuple[Any, Callable[[Any, Any, Any, Any], Any]]


def _filtering(width: int) -> Any:
    def filtered(typing: Any, x: Any, i: Any, least: Any) -> Made:
        def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            x, i, least = given
            lanes = Lanes(width, context, builder, signature, i)
            return lanes.at_least(lanes.sizes(lanes.load(0, x)), least)

        return types.uint64(x, types.intp, types.int32), code

    return intrinsic(filtered)


def _adding(width: int) -> Any:
    def add_and_filter(typing: Any, x: Any, rest: Any, decay: Any, out: Any, i: Any, least: Any) -> Made:
        def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            x, rest, decay, out, i, least = given
            lanes = Lanes(width, context, builder, signature, i)
            total = lanes.plus(lanes.load(0, x), lanes.times(lanes.load(1, rest), decay))
            lanes.store(total, 3, out)
            return lanes.at_least(lanes.sizes(total), least)

        return types.uint64(x, rest, types.float32, out, types.intp, types.int32), code

    return intrinsic(add_and_filter)


def _adding_for_largest(width: int) -> Any:
    def add_and_largest(typing: Any, x: Any, rest: Any, out: Any, i: Any) -> Made:
        def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            x, rest, out, i = given
            lanes = Lanes(width, context, builder, signature, i)
            total = lanes.plus(lanes.load(0, x), lanes.load(1, rest))
            lanes.store(total, 2, out)
            return lanes.largest(lanes.sizes(total))

        return types.int32(x, rest, out, types.intp), code

    return intrinsic(add_and_largest)


def _reaching(width: int) -> Any:
    def reaching(typing: Any, total: Any, x: Any, more: Any, i: Any, least: Any) -> Made:
        def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            total, x, more, i, least = given
            lanes = Lanes(width, context, builder, signature, i)
            reach = lanes.plus(lanes.load(0, total), lanes.times(lanes.load(1, x), more))
            return lanes.at_least(lanes.sizes(reach), least)

        return types.uint64(total, x, types.float32, types.intp, types.int32), code

    return intrinsic(reaching)


def _lowest() -> Any:
    def lowest(typing: Any, bits: Any) -> Made:
        def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            return builder.cttz(given[0], ir.Constant(ir.IntType(1), 1))

        return types.intp(types.uint64), code

    return intrinsic(lowest)


lowest = _lowest()  # (bits): the number of the lowest that is set; some bit is
filtered64 = _filtering(64)  # (x, i, least): the bits of x as large as that
add_and_filter64 = _adding(64)  # (x, rest, decay, out, i, least): out = x + decay * rest, and its bits as large
add_and_largest64, add_and_largest32 = _adding_for_largest(64), _adding_for_largest(32)  # (x, rest, out, i)
reaching64, reaching32 = _reaching(64), _reaching(32)  # (total, x, more, i, least): of total + more * x
