"""Vector instructions for selection: 64 or 32 floats in, one bit per float out.

Without these, the compiler writes one byte per comparison and reads it again, although processors have instructions
that give one bit each. Sizes are compared as integers: without the sign, the bits of floats are ordered as their
magnitudes are, and NaN is the largest.
"""

from typing import Any

from llvmlite import ir
from numba import types

from .instructions import FLOAT, INT, Generated, Instructions, intrinsic_of

WITHOUT_SIGN = 0x7FFFFFFF


class Lanes(Instructions):
    """Instructions for `width` adjacent floats, from entry i on."""

    def __init__(self, width: int, context: Any, builder: Any, signature: Any, i: Any) -> None:
        super().__init__(width, context, builder, signature)
        self.i, self.floats, self.ints = i, ir.VectorType(FLOAT, width), ir.VectorType(INT, width)

    def load(self, position: int, array: Any) -> Any:
        return self.builder.load(self.pointer(position, array, self.i, self.floats), align=4)

    def store(self, numbers: Any, position: int, array: Any, nontemporal: bool = False) -> None:
        """Nontemporal stores need 64-byte alignment; they bypass the cache, so memory is not read before."""
        pointer = self.pointer(position, array, self.i, self.floats)
        stored = self.builder.store(numbers, pointer, align=64 if nontemporal else 4)
        if nontemporal:
            stored.set_metadata("nontemporal", self.builder.module.add_metadata([ir.Constant(INT, 1)]))

    def times(self, numbers: Any, factor: Any) -> Any:
        return self.builder.fmul(numbers, self.repeated(factor))

    def plus(self, numbers: Any, others: Any) -> Any:
        return self.builder.fadd(numbers, others)

    def sizes(self, numbers: Any) -> Any:
        """The bits of floats without the sign."""
        mask = ir.Constant(self.ints, [WITHOUT_SIGN] * self.width)
        return self.builder.and_(self.builder.bitcast(numbers, self.ints), mask)

    def largest(self, sizes: Any) -> Any:
        return self.call(f"llvm.vector.reduce.smax.v{self.width}i32", INT, sizes)

    def at_least(self, sizes: Any, least: Any) -> Any:
        """One bit per size: whether it is at least `least`."""
        below = self.builder.sub(least, ir.Constant(INT, 1))  # processors can only compare for "larger"
        bits = self.builder.icmp_signed(">", sizes, self.repeated(below))
        word = self.builder.bitcast(bits, ir.IntType(self.width))
        return word if self.width == 64 else self.builder.zext(word, ir.IntType(64))


def _filtering(width: int) -> Any:
    def filtered(typing: Any, x: Any, i: Any, least: Any) -> Generated:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            x, i, least = arguments
            lanes = Lanes(width, context, builder, signature, i)
            return lanes.at_least(lanes.sizes(lanes.load(0, x)), least)

        return types.uint64(x, types.intp, types.int32), code

    return intrinsic_of(filtered)


def _adding(width: int, nontemporal: bool) -> Any:
    def add_and_filter(typing: Any, x: Any, rest: Any, decay: Any, out: Any, i: Any, least: Any) -> Generated:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            x, rest, decay, out, i, least = arguments
            lanes = Lanes(width, context, builder, signature, i)
            total = lanes.plus(lanes.load(0, x), lanes.times(lanes.load(1, rest), decay))
            lanes.store(total, 3, out, nontemporal)
            return lanes.at_least(lanes.sizes(total), least)

        return types.uint64(x, rest, types.float32, out, types.intp, types.int32), code

    return intrinsic_of(add_and_filter)


def _adding_for_largest(width: int) -> Any:
    def add_and_largest(typing: Any, x: Any, rest: Any, out: Any, i: Any) -> Generated:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            x, rest, out, i = arguments
            lanes = Lanes(width, context, builder, signature, i)
            total = lanes.plus(lanes.load(0, x), lanes.load(1, rest))
            lanes.store(total, 2, out)
            return lanes.largest(lanes.sizes(total))

        return types.int32(x, rest, out, types.intp), code

    return intrinsic_of(add_and_largest)


def _reaching(width: int) -> Any:
    def reaching(typing: Any, total: Any, x: Any, more: Any, i: Any, least: Any) -> Generated:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            total, x, more, i, least = arguments
            lanes = Lanes(width, context, builder, signature, i)
            reach = lanes.plus(lanes.load(0, total), lanes.times(lanes.load(1, x), more))
            return lanes.at_least(lanes.sizes(reach), least)

        return types.uint64(total, x, types.float32, types.intp, types.int32), code

    return intrinsic_of(reaching)


def _lowest() -> Any:
    def lowest(typing: Any, bits: Any) -> Generated:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

        return types.intp(types.uint64), code

    return intrinsic_of(lowest)


lowest = _lowest()  # (bits): the index of the lowest set bit, or 64
filtered64 = _filtering(64)  # (x, i, least): bits of x >= least
add_and_filter64 = _adding(64, False)  # (x, rest, decay, out, i, least): out = x + decay * rest; bits of out >= least
add_nontemporal_and_filter64 = _adding(64, True)  # the same, with nontemporal stores
add_and_largest64, add_and_largest32 = _adding_for_largest(64), _adding_for_largest(32)  # (x, rest, out, i)
reaching64, reaching32 = _reaching(64), _reaching(32)  # (total, x, more, i, least): bits of total + more * x >= least
