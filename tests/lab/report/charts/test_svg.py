import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thinwire.lab.report.charts import svg
from thinwire.lab.report.charts.svg import Axis

sizes = st.floats(1e-9, 1e12)


def test_text_and_attributes_are_escaped():
    assert svg.words("<a> & b", 1, 2) == '<text x="1.0" y="2.0">&lt;a&gt; &amp; b</text>'
    assert svg.tag("g", class_="x", data_series='"<&>"') == '<g class="x" data-series="&quot;&lt;&amp;&gt;&quot;"></g>'


def test_an_axis_maps_its_range_to_its_coordinates():
    line, log = Axis(2, 6, 100, 300), Axis(10, 1000, 300, 100, log=True)
    assert [line.at(v) for v in (2, 3, 6)] == [100, 150, 300]
    assert [log.at(v) for v in (10, 100, 1000)] == pytest.approx([300, 200, 100])


def test_a_logarithmic_axis_cannot_show_0_and_no_axis_can_show_nan():
    assert not Axis(1, 10, 0, 1, log=True).shows(0)
    assert Axis(0, 10, 0, 1).shows(0)
    assert not Axis(0, 10, 0, 1).shows(math.nan)


@pytest.mark.parametrize(
    ("axis", "ticks"),
    [
        (Axis(0, 1, 0, 1), [0, 0.25, 0.5, 0.75, 1]),
        (Axis(0, 160, 0, 1, unit="seconds"), [0, 50, 100, 150]),
        (Axis(0, 300, 0, 1, unit="seconds"), [0, 120, 240]),
        (Axis(0, 5000, 0, 1, unit="seconds"), [0, 1800, 3600]),
        (Axis(0.8, 0.93, 0, 1), [0.8, 0.85, 0.9]),
        (Axis(3, 3000, 0, 1, log=True), [10, 100, 1000]),
        (Axis(0.15, 3, 0, 1, log=True), [0.2, 0.5, 1, 2]),
    ],
)
def test_ticks_are_round(axis, ticks):
    assert axis.ticks() == pytest.approx(ticks)


@given(sizes, st.floats(1.01, 1e6), st.booleans())
def test_an_axis_has_1_to_9_ticks_within_its_range(low, factor, log):
    axis = Axis(low, low * factor, 0, 100, log)
    ticks = axis.ticks()
    assert 1 <= len(ticks) <= 9
    assert all(-0.001 <= axis.at(tick) <= 100.001 for tick in ticks)


@given(st.lists(st.floats(0, 200), min_size=1, max_size=30))
def test_spaced_positions_keep_their_order_and_a_gap(positions):
    moved = svg.spaced(positions, 10, 0, 200)
    gap = min(10, 200 / max(1, len(positions) - 1))
    assert all(-1e-6 <= position <= 200 + 1e-6 for position in moved)
    ranked = sorted(moved)
    assert all(b - a >= gap - 1e-6 for a, b in pairwise(ranked))
    order = sorted(range(len(positions)), key=positions.__getitem__)
    assert [moved[i] for i in order] == ranked


def test_positions_with_a_gap_do_not_move():
    assert svg.spaced([50, 20, 100], 10, 0, 200) == [50, 20, 100]
