"""Sizes that loops and those who call them must agree on, as nothing checks it."""

LOW_BITS = 15  # of a size by its bits, which has 31
PIECE, ABREAST = 2048, 32  # entries that are summed together, and in how many sums
WORD = 64  # entries that are looked at together: where places are noted, there is room for so many more
