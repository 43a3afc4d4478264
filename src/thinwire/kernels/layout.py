"""Sizes that loops and their callers must agree on; nothing checks them."""

LOW_BITS = 15  # low bits of a size; a size is the 31 bits of a float without its sign
STRETCH = 2**14  # entries whose squares are summed on their own
PIECE, ABREAST = 2048, 32  # entries that are summed on their own, and the number of parallel sums
WORD = 64  # entries that are compared at once: buffers of positions need room for that many more
# How an entry is rounded: to a step of the scale, to one of several levels, or to a power of two.
NEAREST, STOCHASTIC, TO_LEVELS, TO_POWERS, TO_NEAREST_POWER = range(5)
