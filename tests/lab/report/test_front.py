import math

import pytest

from tests.lab.report.sample_runs import comparison
from thinwire.lab.report import front
from thinwire.lab.report.charts import style as looks
from thinwire.lab.report.charts.scatter import pareto
from thinwire.lab.report.summary import sections


@pytest.mark.parametrize(
    ("points", "better", "on_front"),
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
def test_no_point_on_the_front_is_dominated(points, better, on_front):
    assert pareto(points, better) == on_front


def test_points_on_the_front_are_filled():
    found = sections(comparison())
    drawing = front.front(found[0], looks.looks(found)).drawing
    # fp16 and dense have powersgd's accuracy and a lower compression ratio.
    assert drawing.count('class="point on-front"') == 2
    assert drawing.count('class="point"') == 2
    for sentence in ("powersgd: ratio 40.0x, 90.0% ± 1.0", "&lt;b&gt;&amp;tiny: ratio 125.0x, 80.0% ± 1.0"):
        assert f"<title>{sentence}</title>" in drawing
