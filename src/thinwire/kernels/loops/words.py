"""Some bytes as one number, the first as its lowest, wherever they lie."""

from typing import Any

from llvmlite import ir
from numba import types

from .instructions import Instructions, Made, made

LONG = ir.IntType(64)


def _loading(bits: int) -> Any:
    def load(typing: Any, data: Any, i: Any) -> Made:
        def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            data, i = given
            place = Instructions(1, context, builder, signature).place(0, data, i, ir.IntType(bits))
            word = builder.load(place, align=1)
            return word if bits == 64 else builder.zext(word, LONG)

        return types.uint64(data, types.uint64), code

    return made(load)


def _storing(bits: int) -> Any:
    def store(typing: Any, data: Any, i: Any, word: Any) -> Made:
        def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            data, i, word = given
            place = Instructions(1, context, builder, signature).place(0, data, i, ir.IntType(bits))
            builder.store(word if bits == 64 else builder.trunc(word, ir.IntType(bits)), place, align=1)
            return context.get_dummy_value()

        return types.void(data, types.uint64, types.uint64), code

    return made(store)


def _counting_zeros() -> Any:
    def zeros(typing: Any, word: Any) -> Made:
        def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            return builder.ctlz(given[0], ir.Constant(ir.IntType(1), 0))

        return types.uint64(types.uint64), code

    return made(zeros)


load16, load32, load64 = _loading(16), _loading(32), _loading(64)  # (bytes, i)
store16, store64 = _storing(16), _storing(64)  # (bytes, i, word)
zeros_above = _counting_zeros()  # (word): how many bits are above the highest that is set
