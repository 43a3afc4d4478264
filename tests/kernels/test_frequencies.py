"""Counts, frequencies and code lengths, against slow reference implementations."""

from fractions import Fraction
from heapq import heapify, heappop, heappush
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thinwire.kernels.frequencies import count_symbols, lengths, scaled, share_bits

from .symbol_rows import ALPHABETS, KINDS, sample_symbols
from .twins import THREADS, on_threads, with_twins

some_weights = st.lists(st.integers(0, 2**40 - 1) | st.integers(0, 3), min_size=1, max_size=300).filter(any)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("alphabet", ALPHABETS)
def test_symbols_are_counted(kind: str, alphabet: int) -> None:
    for size in (0, 1, 5, 70_001):
        symbols = sample_symbols(kind, size, alphabet)
        expected = np.bincount(symbols, minlength=alphabet)
        assert np.array_equal(with_twins(lambda some=symbols: count_symbols(some, alphabet)), expected)
        for threads in THREADS:
            with on_threads(threads):
                assert np.array_equal(count_symbols(symbols, alphabet), expected)


def test_strided_symbols_are_counted() -> None:
    assert count_symbols(np.arange(10, dtype=np.uint8)[::3], 10).tolist() == [1, 0, 0, 1, 0, 0, 1, 0, 0, 1]


@pytest.mark.parametrize(("kind", "alphabet"), [(np.uint8, 255), (np.uint16, 255), (np.uint16, 65_535)])
def test_symbols_outside_the_alphabet_are_an_error(kind: type, alphabet: int) -> None:
    symbols = np.array([0, alphabet, 1], kind)
    for count in (
        lambda: count_symbols(symbols, alphabet),
        lambda: with_twins(lambda: count_symbols(symbols, alphabet)),
    ):
        with pytest.raises(ValueError, match=f"symbol {alphabet} is beyond an alphabet of {alphabet}"):
            count()
    assert count_symbols(symbols, alphabet + 1).sum() == 3


@given(some_weights)
def test_frequencies_are_as_near_to_proportional_as_possible(weights: list[int]) -> None:
    assert scaled(np.array(weights)).tolist() == slowly_scaled(weights)


@pytest.mark.parametrize("alphabet", ALPHABETS)
def test_frequencies_sum_to_a_power_of_two(alphabet: int) -> None:
    random = np.random.default_rng(alphabet)
    for weights in (
        np.ones(alphabet, np.int64),
        np.full(alphabet, 2**40 - 1),
        (2 ** (40 * random.random(alphabet))).astype(np.int64),
        (random.random(alphabet) < 0.3) * random.integers(0, 2**40, alphabet) + (np.arange(alphabet) == 0),
    ):
        shares = scaled(weights)
        assert shares.sum() == 2 ** share_bits(alphabet)
        assert np.array_equal(shares > 0, weights > 0)
        # A larger weight never has a lower frequency; frequencies of equal weights differ by at most 1.
        order = np.argsort(weights, kind="stable")
        same = np.diff(weights[order]) == 0
        assert (np.diff(shares[order])[~same] >= 0).all()
        assert (np.abs(np.diff(shares[order])[same]) <= 1).all()


def test_of_equal_remainders_the_first_is_rounded_up() -> None:
    assert scaled(np.array([5, 5, 5])).tolist() == [5462, 5461, 5461]


def test_weights_that_are_all_zero_are_an_error() -> None:
    for weights in (np.zeros(5, np.int64), np.zeros(0, np.int64)):
        with pytest.raises(ValueError, match="all weights are 0"):
            scaled(weights)


@given(some_weights, st.integers(0, 8))
def test_code_lengths_are_optimal_within_the_limit(weights: list[int], more: int) -> None:
    frequencies = np.array(weights)
    number = int((frequencies > 0).sum())
    limit = max(1, (number - 1).bit_length()) + more
    long = lengths(frequencies, limit)
    assert np.array_equal(long > 0, (frequencies > 0) & (number > 1))
    if number > 1:
        assert sum(2 ** (limit - int(n)) for n in long if n) == 2**limit  # the code is complete
        assert cost(frequencies, long) == slow_cost(weights, limit)


@given(some_weights)
def test_without_an_effective_limit_the_cost_is_that_of_huffman_codes(weights: list[int]) -> None:
    frequencies = np.array(weights)
    assert cost(frequencies, lengths(frequencies, 60)) == cost_by_heap([w for w in weights if w])


def test_no_other_code_lengths_cost_less() -> None:
    for weights in ([1, 1, 2, 30], [1, 2, 4, 8, 16], [3, 3, 3, 3, 3], [0, 7, 1, 1]):
        for limit in (3, 4):
            number = sum(w > 0 for w in weights)
            least = min(
                sum(w * n for w, n in zip((w for w in weights if w), tried, strict=True))
                for tried in product(range(1, limit + 1), repeat=number)
                if sum(Fraction(1, 2**n) for n in tried) <= 1
            )
            assert cost(np.array(weights), lengths(np.array(weights), limit)) == least


def test_of_equally_frequent_symbols_the_last_get_the_shorter_codes() -> None:
    assert lengths(np.array([4, 4, 4]), 12).tolist() == [2, 2, 1]


def test_all_symbols_of_the_largest_alphabet_get_a_code() -> None:
    assert set(lengths(np.ones(65_536, np.int64), 16).tolist()) == {16}


def test_more_symbols_than_codes_are_an_error() -> None:
    with pytest.raises(ValueError, match="5 symbols cannot all have codes of at most 2 bits"):
        lengths(np.ones(5, np.int64), 2)


def test_cached_lengths_are_copied() -> None:
    frequencies = np.array([1, 2, 3])
    lengths(frequencies, 12)[:] = 9
    assert lengths(frequencies, 12).tolist() == [2, 2, 1]


def slowly_scaled(weights: list[int]) -> list[int]:
    left, pool, shares = 2 ** share_bits(len(weights)), {i: w for i, w in enumerate(weights) if w}, [0] * len(weights)
    while True:
        total = sum(pool.values())
        small = [i for i, w in pool.items() if w * left < total]
        if not small:
            break
        for i in small:
            shares[i] = 1
            left -= 1
            del pool[i]
    exact = {i: Fraction(w * left, total) for i, w in pool.items()}
    for i in pool:
        shares[i] = int(exact[i])
    missing = left - sum(shares[i] for i in pool)
    for i in sorted(pool, key=lambda i: shares[i] - exact[i])[:missing]:
        shares[i] += 1
    return shares


def cost(frequencies: np.ndarray, long: np.ndarray) -> int:
    return sum(f * int(n) for f, n in zip(frequencies.tolist(), long, strict=True))


def slow_cost(weights: list[int], limit: int) -> int:
    """The coin collector's problem: one coin of every size per symbol, and the cheapest set worth n - 1."""
    coins = sorted(w for w in weights if w)
    packages: list[int] = []
    for _ in range(limit):
        both = sorted(coins + packages)
        packages = [a + b for a, b in zip(both[::2], both[1::2], strict=False)]
    return sum(packages[: len(coins) - 1])


def cost_by_heap(weights: list[int]) -> int:
    heapify(weights)
    total = 0
    while len(weights) > 1:
        joined = heappop(weights) + heappop(weights)
        total += joined
        heappush(weights, joined)
    return total
