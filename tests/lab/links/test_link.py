import pytest
from hypothesis import given
from hypothesis import strategies as st

from thinwire.lab.links import Link
from thinwire.lab.links.link import HIGHEST, LOWEST

rates = st.integers(LOWEST, HIGHEST) | st.integers(1, 999).map(lambda n: n * 10**6)


@given(st.builds(Link, down=rates, up=rates, star=st.booleans()))
def test_the_text_of_a_link_parses_to_that_link(link):
    assert Link.parse(str(link)) == link


@pytest.mark.parametrize(
    ("text", "down", "up"),
    [
        ("100mbit", 10**8, 10**8),
        ("1gbit", 10**9, 10**9),
        ("2.3gbit", 2_300_000_000, 2_300_000_000),
        ("64kbit", 64_000, 64_000),
        ("123456bit", 123_456, 123_456),
        ("50mbit/10mbit", 50 * 10**6, 10 * 10**6),
        (" 50MBit / 10Mbit ", 50 * 10**6, 10 * 10**6),
    ],
)
def test_rates_are_parsed(text, down, up):
    assert Link.parse(text) == Link(down=down, up=up)
    assert Link.parse(f" Star:{text}") == Link(down=down, up=up, star=True)


def test_the_middle_of_a_star_is_not_limited():
    assert [Link.parse("star:1gbit").is_limited(rank) for rank in range(3)] == [False, True, True]
    assert all(Link.parse("1gbit").is_limited(rank) for rank in range(3))


@pytest.mark.parametrize(
    ("link", "shown"),
    [
        (Link(10**8, 10**8), "100mbit"),
        (Link(2_500_000_000, 2_500_000_000), "2.5gbit"),
        (Link(50 * 10**6, 10 * 10**6), "50mbit/10mbit"),
        (Link(1_500_000, 64_000), "1.5mbit/64kbit"),
    ],
)
def test_a_link_is_shown_in_the_largest_units(link, shown):
    assert str(link) == shown


@pytest.mark.parametrize("text", ["", "100", "fast", "-1mbit", "1e3mbit", "1mbit/", "10 mbit", "1tbit", "1.mbit"])
def test_an_invalid_rate_is_an_error_with_examples(text):
    with pytest.raises(ValueError, match=r"is not a rate; write it such as 100mbit, .* 50mbit/10mbit") as raised:
        Link.parse(text)
    assert repr(text) in str(raised.value)


def test_a_third_rate_is_an_error():
    with pytest.raises(ValueError, match=r"'1mbit/2mbit/3mbit'.* more than two rates"):
        Link.parse("1mbit/2mbit/3mbit")


def test_a_fractional_bit_is_an_error():
    with pytest.raises(ValueError, match="not an integer number of bits"):
        Link.parse("10000.5bit")


@pytest.mark.parametrize("text", ["0mbit", "9999bit", "31gbit", "100mbit/1kbit", "1kbit/100mbit"])
def test_rates_out_of_range_are_an_error(text):
    with pytest.raises(ValueError, match="cannot be created here: it must be from 10kbit to 30gbit"):
        Link.parse(text)
