import math

import pytest

from tests.lab.report.sample_runs import comparison
from thinwire.lab.report import front
from thinwire.lab.report.charts import style as looks
from thinwire.lab.report.charts.scatter import pareto
from thinwire.lab.report.summary import sections


@pytest.mark.parametrize(
    ("points", "better", "unbeaten"),
    [
        ([(1, 0.9)], "higher", [0]),
        ([(1, 0.9), (2, 0.8), (3, 0.7)], "higher", [0, 1, 2]),
        ([(3, 0.7), (1, 0.9), (2, 0.8)], "higher", [1, 2, 0]),
        ([(1, 0.9), (2, 0.8), (3, 0.85)], "higher", [0, 2]),
        ([(1, 0.9), (2, 0.95), (3, 0.99)], "higher", [2]),
        ([(1, 0.9), (2, 0.9)], "higher", [1]),
        ([(2, 0.9), (2, 0.8)], "higher", [0]),
        ([(2, 0.9), (2, 0.9)], "higher", [0, 1]),
        ([(1, 3.0), (2, 2.0), (3, 2.5)], "lower", [1, 2]),
        ([(1, 0.9), (2, math.nan), (math.inf, 0.8)], "higher", [0]),
        ([], "higher", []),
    ],
)
def test_the_front_is_what_no_other_point_beats_in_both(points, better, unbeaten):
    assert pareto(points, better) == unbeaten


def test_points_on_the_front_are_filled():
    found = sections(comparison())
    drawing = front.front(found[0], looks.looks(found)).drawing
    # fp16 and dense end as good as powersgd, which is smaller than both.
    assert drawing.count('class="place unbeaten"') == 2
    assert drawing.count('class="place"') == 2
    for sentence in ("powersgd: 40.0x smaller, 90.0% ± 1.0", "&lt;b&gt;&amp;thin: 125.0x smaller, 80.0% ± 1.0"):
        assert f"<title>{sentence}</title>" in drawing
