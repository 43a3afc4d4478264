import pytest

from thinwire.lab.report import number_format as units


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (123_456, "123 kB"), (44_700_000, "44.7 MB"), (2.5e9, "2.50 GB")],
)
def test_bytes_have_a_decimal_unit(nbytes, text):
    assert units.human(nbytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0000123, "12 us"),
        (0.0123, "12.3 ms"),
        (1.234, "1.23 s"),
        (59.94, "59.9 s"),
        (599.0, "599.0 s"),
        (600.0, "10.0 min"),
        (36_000.0, "10.0 h"),
    ],
)
def test_durations_have_a_fitting_unit(seconds, text):
    assert units.duration(seconds) == text


@pytest.mark.parametrize(
    ("metric", "value", "spread", "text"),
    [
        ("test_accuracy", 0.98765, None, "98.8%"),
        ("test_accuracy", 0.98765, 0.0123, "98.8% ± 1.2"),
        ("mean_iou", 0.5, None, "50.0%"),
        ("perplexity", 104.12345, 0.5, "104.123 ± 0.500"),
        ("test_loss", 0.5, None, "0.500"),
    ],
)
def test_fractions_are_in_percent_and_other_metrics_have_three_decimals(metric, value, spread, text):
    assert units.metric_text(metric, value, spread) == text


@pytest.mark.parametrize(
    ("link", "text"),
    [
        ("20mbit", "20 Mbit/s"),
        ("2.5gbit", "2.5 Gbit/s"),
        ("56kbit", "56 kbit/s"),
        ("50mbit/10mbit", "50 Mbit/s down, 10 Mbit/s up"),
        ("star:20mbit", "a star of 20 Mbit/s"),
        ("a wet string", "a wet string"),
    ],
)
def test_links_are_shown_with_rates_and_directions(link, text):
    assert units.link_text(link) == text


@pytest.mark.parametrize(("share", "text"), [(0.9, "90%"), (0.875, "87.5%"), (0.3, "30%"), (0.9825, "98.25%")])
def test_a_percent_tick_has_all_its_decimals(share, text):
    assert units.percent(share) == text


@pytest.mark.parametrize(("most", "text"), [(0.09, "50 ms"), (9.0, "0.05 s"), (400.0, "0.000833333 min")])
def test_times_on_an_axis_have_one_unit(most, text):
    assert units.clock(most)(0.05) == text
    assert units.clock(most)(0) == "0"


@pytest.mark.parametrize(
    ("share", "text"), [(0.0, "0.00%"), (1e-8, "<0.01%"), (5e-4, "0.05%"), (0.0994, "9.94%"), (0.146, "14.6%")]
)
def test_small_distances_are_not_rounded_to_0(share, text):
    assert units.distance_text(share) == text


@pytest.mark.parametrize(("share", "text"), [(0.5, "50%"), (0.001, "0.1%"), (1e-4, "0.01%"), (1e-5, "1e-3%")])
def test_ticks_of_small_distances_stay_short(share, text):
    assert units.fine_percent(share) == text


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (500, "500"), (1000, "1k"), (12_500, "12.5k"), (2_000_000, "2M")]
)
def test_ticks_of_counts_stay_short(number, text):
    assert units.rounded_count(number) == text


def test_a_list_is_joined_with_commas_and_and():
    assert [units.enumerated(list(words)) for words in ("", "a", "ab", "abc")] == ["", "a", "a and b", "a, b and c"]
