import re

from tests.lab.report.parsed import Page
from tests.lab.report.sample_runs import a_run
from tests.lab.report.test_report_table import printed
from thinwire.lab.report.page import page as page_of
from thinwire.lab.report.summary import sections


def shown(runs):
    return page_of(sections(runs))


def uneven(methods):
    """Three seeds of dense, and one seed each of `methods` other methods."""
    return [a_run("dense", seed) for seed in (1, 2, 3)] + [a_run(f"m{i}", ratio=2.0 + i) for i in range(methods)]


def test_few_missing_seeds_are_warnings():
    text = shown(uneven(3))
    assert "m0, m1, m2 : no run yet for seed 2, 3" in Page(text).text
    assert 'class="warnings"' in text


def test_many_missing_seeds_are_one_remark():
    text = shown([*uneven(4), a_run("m3", 2, ratio=5.0)])
    assert '<p class="quiet">No run yet for seed 2, 3 of m0, m1, m2; seed 3 of m3.</p>' in text
    assert 'class="warnings"' not in text


def test_a_mean_is_over_the_seeds_that_the_method_has():
    runs = [a_run("dense", seed, accuracy) for seed, accuracy in ((1, 0.8), (2, 0.9), (3, 1.0))]
    runs.append(a_run("fp16", 1, 0.7, ratio=2.0))
    page = Page(shown(runs))
    head, dense, half = page.tables[0]
    accuracy, seeds = head.index("accuracy"), head.index("seeds")
    assert (dense[accuracy], dense[seeds]) == ("90.0% ± 10.0", "3")
    assert (half[accuracy], half[seeds]) == ("70.0%", "1")
    assert "sample standard deviation (up to 3 seeds)" in page.text
    text = " ".join(printed(runs).split())
    assert "Means over up to 3 seeds, ± the sample standard deviation." in text
    assert "fp16 70.0% 500 kB" in text


def test_interruptions_are_one_remark():
    first = a_run("dense", 1, resumed=[{"step": 1200, "commit": "a"}, {"step": 2500, "commit": "b"}])
    second = a_run("<fp16>", 2, resumed=[{"step": 40, "commit": None}])
    text = shown([first, a_run("dense", 2), a_run("<fp16>", 1), second])
    line = "Resumed after an interruption: dense, seed 1, after step 1,200 and 2,500; <fp16>, seed 2, after step 40."
    assert line in Page(text).text
    assert len(re.findall("Resumed", text)) == 1
    assert "<fp16>" not in text, "names are escaped"


def test_runs_without_interruptions_have_no_remark():
    assert "Resumed" not in shown([a_run()])
