"""Vector instructions for 128 entries at a time: their codes are packed into a lane of bytes, and their sizes added."""

from typing import Any

from llvmlite import ir
from numba import types

from .instructions import BYTE, FLOAT, INT, Generated, Instructions, intrinsic_of

WIDTH = 32
FLOATS, BYTES = ir.VectorType(FLOAT, WIDTH), ir.VectorType(BYTE, WIDTH)
DOUBLES = ir.VectorType(ir.DoubleType(), WIDTH)
ZEROS, NONE = ir.Constant(FLOATS, [0.0] * WIDTH), ir.Constant(BYTES, [0] * WIDTH)


class Code(Instructions):
    """Instructions for 32 adjacent entries of arrays."""

    def __init__(self, context: Any, builder: Any, signature: Any) -> None:
        super().__init__(WIDTH, context, builder, signature)

    def at_offset(self, position: int, array: Any, i: Any, offset: int, kind: Any) -> Any:
        return self.pointer(position, array, self.builder.add(i, ir.Constant(i.type, offset)), kind)

    def load(self, pointer: Any) -> Any:
        return self.builder.load(pointer, align=4 if pointer.type.pointee == FLOATS else 1)

    def join(self, codes: Any, pointer: Any) -> None:
        self.builder.store(self.builder.or_(self.load(pointer), codes), pointer, align=1)

    def sizes(self, numbers: Any) -> Any:
        return self.call(f"llvm.fabs.v{WIDTH}f32", FLOATS, numbers)

    def add_fours(self, sizes: list[Any], pointer: Any) -> None:
        p, q, r, s = sizes
        fours = self.builder.fadd(self.builder.fadd(p, q), self.builder.fadd(r, s))
        sums = self.builder.fadd(self.builder.load(pointer, align=8), self.builder.fpext(fours, DOUBLES))
        self.builder.store(sums, pointer, align=8)


def _add_sizes(typing: Any, x: Any, i: Any, sums: Any) -> Generated:
    """Add the sizes of 128 entries from i on to 32 sums; groups of four are first added in 32 bits."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, i, sums = arguments
        code = Code(context, builder, signature)
        sizes = [code.sizes(code.load(code.at_offset(0, x, i, k * WIDTH, FLOATS))) for k in range(4)]
        code.add_fours(sizes, code.pointer(2, sums, ir.Constant(i.type, 0), DOUBLES))
        return context.get_dummy_value()

    return types.void(x, types.intp, sums), code


def _add_sizes_and_signs(typing: Any, x: Any, i: Any, sums: Any, one: Any, to: Any) -> Generated:
    """The same; and set bit `one` in the bytes, from i on, of negative entries."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, i, sums, one, to = arguments
        code, sizes = Code(context, builder, signature), []
        for k in range(4):
            numbers = code.load(code.at_offset(0, x, i, k * WIDTH, FLOATS))
            negative = builder.fcmp_ordered("<", numbers, ZEROS)
            code.join(builder.select(negative, code.repeated(one), NONE), code.at_offset(4, to, i, k * WIDTH, BYTES))
            sizes.append(code.sizes(numbers))
        code.add_fours(sizes, code.pointer(2, sums, ir.Constant(i.type, 0), DOUBLES))
        return context.get_dummy_value()

    return types.void(x, types.intp, sums, types.uint8, to), code


def _add_sizes_and_ternary(typing: Any, x: Any, i: Any, sums: Any, least: Any, one: Any, to: Any) -> Generated:
    """The same for entries larger than `least` in size only; adds `one` to the bytes of entries that are not below
    -least, and twice that for entries above `least`. Returns the number of entries larger in size.
    """

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, i, sums, least, one, to = arguments
        code, sizes, count = Code(context, builder, signature), [], ir.Constant(INT, 0)
        above, below = code.repeated(least), code.repeated(builder.fneg(least))
        middle, upper = code.repeated(one), code.repeated(builder.add(one, one))
        for k in range(4):
            numbers = code.load(code.at_offset(0, x, i, k * WIDTH, FLOATS))
            codes = builder.select(builder.fcmp_ordered(">=", numbers, below), middle, NONE)
            codes = builder.select(builder.fcmp_ordered(">", numbers, above), upper, codes)
            code.join(codes, code.at_offset(5, to, i, k * WIDTH, BYTES))
            size = code.sizes(numbers)
            small = builder.fcmp_ordered("<=", size, above)
            sizes.append(builder.select(small, ZEROS, size))
            beyond = builder.bitcast(builder.fcmp_ordered(">", size, above), INT)
            count = builder.add(count, builder.ctpop(beyond))
        code.add_fours(sizes, code.pointer(2, sums, ir.Constant(i.type, 0), DOUBLES))
        return builder.zext(count, ir.IntType(64))

    return types.int64(x, types.intp, sums, types.float32, types.uint8, to), code


def _total(typing: Any, sums: Any) -> Generated:
    """Add one half of the sums to the other until one is left."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code, half = Code(context, builder, signature), WIDTH // 2
        sums = builder.load(code.pointer(0, arguments[0], ir.Constant(ir.IntType(64), 0), DOUBLES), align=8)
        while half:
            halves = [
                builder.shuffle_vector(
                    sums, sums, ir.Constant(ir.VectorType(INT, half), list(range(first, first + half)))
                )
                for first in (0, half)
            ]
            sums, half = builder.fadd(*halves), half // 2
        return builder.extract_element(sums, ir.Constant(INT, 0))

    return types.float64(sums), code


add_sizes = intrinsic_of(_add_sizes)  # (x, i, sums)
add_sizes_and_signs = intrinsic_of(_add_sizes_and_signs)  # (x, i, sums, one, to)
add_sizes_and_ternary = intrinsic_of(_add_sizes_and_ternary)  # (x, i, sums, least, one, to)
total = intrinsic_of(_total)  # (sums)
