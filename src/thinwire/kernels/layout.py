"""Sizes that loops and those who call them must agree on, as nothing checks it."""

LOW_BITS = 15  # of a size by its bits, which has 31
STRETCH = 2**14  # entries whose squares are summed by themselves
PIECE, ABREAST = 2048, 32  # entries that are summed together, and in how many sums
WORD = 64  # entries that are looked at together: where places are noted, there is room for so many more
# How an entry is rounded: to a step of the scale, to one of some levels, or to a power of two.
NEAREST, BY_CHANCE, TO_LEVELS, TO_POWERS, TO_NEAREST_POWER = range(5)
