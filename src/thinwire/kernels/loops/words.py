"""Unaligned little-endian words."""

from typing import Any

from llvmlite import ir
from numba import types

from .instructions import Generated, Instructions, intrinsic_of

LONG = ir.IntType(64)


def _loading(bits: int) -> Any:
    def load(typing: Any, data: Any, i: Any) -> Generated:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            data, i = arguments
            pointer = Instructions(1, context, builder, signature).pointer(0, data, i, ir.IntType(bits))
            word = builder.load(pointer, align=1)
            return word if bits == 64 else builder.zext(word, LONG)

        return types.uint64(data, types.uint64), code

    return intrinsic_of(load)


def _storing(bits: int) -> Any:
    def store(typing: Any, data: Any, i: Any, word: Any) -> Generated:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            data, i, word = arguments
            pointer = Instructions(1, context, builder, signature).pointer(0, data, i, ir.IntType(bits))
            builder.store(word if bits == 64 else builder.trunc(word, ir.IntType(bits)), pointer, align=1)
            return context.get_dummy_value()

        return types.void(data, types.uint64, types.uint64), code

    return intrinsic_of(store)


def _counting_zeros() -> Any:
    def zeros(typing: Any, word: Any) -> Generated:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 0))

        return types.uint64(types.uint64), code

    return intrinsic_of(zeros)


load16, load32, load64 = _loading(16), _loading(32), _loading(64)  # (bytes, i)
store16, store64 = _storing(16), _storing(64)  # (bytes, i, word)
zeros_above = _counting_zeros()  # (word): the number of zeros above the highest set bit
