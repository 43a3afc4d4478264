"""64 or 32 floats in, a bit of each out: for what selects.

Left to itself, the compiler writes a byte for each entry that is compared, and reads it again; a bit for each is what
processors have instructions for. Sizes are compared as integers: without the sign, the bits of floats are ordered as
their sizes are, and NaN is the largest.
"""

from typing import Any

from llvmlite import ir
from numba import types

from .instructions import FLOAT, INT, Instructions, Made, made

WITHOUT_SIGN = 0x7FFFFFFF


class Lanes(Instructions):
    """Floats that lie next to each other, from entry i on."""

    def __init__(self, width: int, context: Any, builder: Any, signature: Any, i: Any) -> None:
        super().__init__(width, context, builder, signature)
        self.i, self.floats, self.ints = i, ir.VectorType(FLOAT, width), ir.VectorType(INT, width)

    def load(self, position: int, array: Any) -> Any:
        return self.builder.load(self.place(position, array, self.i, self.floats), align=4)

    def store(self, numbers: Any, position: int, array: Any, past_the_cache: bool = False) -> None:
        """Past the cache, nothing is fetched first that is then written over; it takes a place that 64 divides."""
        place = self.place(position, array, self.i, self.floats)
        stored = self.builder.store(numbers, place, align=64 if past_the_cache else 4)
        if past_the_cache:
            stored.set_metadata("nontemporal", self.builder.module.add_metadata([ir.Constant(INT, 1)]))

    def times(self, numbers: Any, factor: Any) -> Any:
        return self.builder.fmul(numbers, self.repeated(factor))

    def plus(self, numbers: Any, others: Any) -> Any:
        return self.builder.fadd(numbers, others)

    def sizes(self, numbers: Any) -> Any:
        """Their bits without the sign."""
        mask = ir.Constant(self.ints, [WITHOUT_SIGN] * self.width)
        return self.builder.and_(self.builder.bitcast(numbers, self.ints), mask)

    def largest(self, sizes: Any) -> Any:
        return self.call(f"llvm.vector.reduce.smax.v{self.width}i32", INT, sizes)

    def at_least(self, sizes: Any, least: Any) -> Any:
        """A bit for each that is as large."""
        below = self.builder.sub(least, ir.Constant(INT, 1))  # processors have instructions for "larger" only
        bits = self.builder.icmp_signed(">", sizes, self.repeated(below))
        word = self.builder.bitcast(bits, ir.IntType(self.width))
        return word if self.width == 64 else self.builder.zext(word, ir.IntType(64))


def _filtering(width: int) -> Any:
    def filtered(typing: Any, x: Any, i: Any, least: Any) -> Made:
        def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            x, i, least = given
            lanes = Lanes(width, context, builder, signature, i)
            return lanes.at_least(lanes.sizes(lanes.load(0, x)), least)

        return types.uint64(x, types.intp, types.int32), code

    return made(filtered)


def _adding(width: int, past_the_cache: bool) -> Any:
    def add_and_filter(typing: Any, x: Any, rest: Any, decay: Any, out: Any, i: Any, least: Any) -> Made:
        def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            x, rest, decay, out, i, least = given
            lanes = Lanes(width, context, builder, signature, i)
            total = lanes.plus(lanes.load(0, x), lanes.times(lanes.load(1, rest), decay))
            lanes.store(total, 3, out, past_the_cache)
            return lanes.at_least(lanes.sizes(total), least)

        return types.uint64(x, rest, types.float32, out, types.intp, types.int32), code

    return made(add_and_filter)


def _adding_for_largest(width: int) -> Any:
    def add_and_largest(typing: Any, x: Any, rest: Any, out: Any, i: Any) -> Made:
        def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            x, rest, out, i = given
            lanes = Lanes(width, context, builder, signature, i)
            total = lanes.plus(lanes.load(0, x), lanes.load(1, rest))
            lanes.store(total, 2, out)
            return lanes.largest(lanes.sizes(total))

        return types.int32(x, rest, out, types.intp), code

    return made(add_and_largest)


def _reaching(width: int) -> Any:
    def reaching(typing: Any, total: Any, x: Any, more: Any, i: Any, least: Any) -> Made:
        def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            total, x, more, i, least = given
            lanes = Lanes(width, context, builder, signature, i)
            reach = lanes.plus(lanes.load(0, total), lanes.times(lanes.load(1, x), more))
            return lanes.at_least(lanes.sizes(reach), least)

        return types.uint64(total, x, types.float32, types.intp, types.int32), code

    return made(reaching)


def _lowest() -> Any:
    def lowest(typing: Any, bits: Any) -> Made:
        def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            return builder.cttz(given[0], ir.Constant(ir.IntType(1), 0))

        return types.intp(types.uint64), code

    return made(lowest)


lowest = _lowest()  # (bits): the number of the lowest that is set, or 64
filtered64 = _filtering(64)  # (x, i, least): the bits of x as large as that
add_and_filter64 = _adding(64, False)  # (x, rest, decay, out, i, least): out = x + decay * rest, and its bits as large
add_past_and_filter64 = _adding(64, True)  # the same
add_and_largest64, add_and_largest32 = _adding_for_largest(64), _adding_for_largest(32)  # (x, rest, out, i)
reaching64, reaching32 = _reaching(64), _reaching(32)  # (total, x, more, i, least): of total + more * x
