import pytest

from tests.lab.report.sample_runs import a_run, comparison
from thinwire.lab.report.charts import curves
from thinwire.lab.report.columns import columns
from thinwire.lab.report.findings import findings
from thinwire.lab.report.summary import sections


def found(runs, target=None):
    (section,) = sections(runs, target)
    return {finding.figure: finding for finding in findings(section)}


def test_findings_are_fewest_bytes_at_the_target_fastest_and_fewest_bytes_of_all():
    by_figure = found(comparison(), target=0.85)
    assert list(by_figure) == ["40.0x fewer bytes", "2.00x faster", "125.0x fewer bytes"]
    assert [finding.method for finding in by_figure.values()] == ["powersgd", "powersgd", "<b>&tiny"]
    assert "90.0% at the end, dense 90.0%" in by_figure["40.0x fewer bytes"].sentence


def test_if_no_method_is_faster_than_dense_the_finding_is_a_slowdown():
    by_figure = found([a_run("dense", seconds=10.0), a_run("fp16", seconds=20.0, ratio=2.0)], target=0.5)
    assert "2.00x slower" in by_figure
    assert "No method" in by_figure["2.00x slower"].sentence


def test_modeled_time_is_mentioned():
    by_figure = found([a_run("dense", modeled=True), a_run("fp16", seconds=10.0, modeled=True)], target=0.5)
    assert "modeled" in by_figure["2.00x faster"].sentence


def test_a_rank_that_trains_alone_has_no_bytes_to_compare():
    (section,) = sections([a_run("dense"), a_run("alone", variant="alone")])
    assert [entry.label for entry in section.senders] == ["dense"]
    assert [curve.label for curve in curves.metrics(section, "payload_bytes")] == ["dense"]
    assert [curve.label for curve in curves.metrics(section, "seconds")] == ["dense", "alone"]
    (ratio,) = (column for column in columns(section) if column.name(section) == ("ratio",))
    assert [ratio.text(section, entry) for entry in section.entries] == ["1.0x", "-"]


def test_a_rank_that_trains_alone_has_no_finding():
    alone = a_run("alone", method="Average()", variant="alone", seconds=1.0)
    by_figure = found([a_run("dense"), alone, a_run("fp16", seconds=10.0, ratio=2.0)], target=0.5)
    assert {finding.method for finding in by_figure.values()} == {"fp16"}
    assert found([a_run("dense"), alone]) == {}


@pytest.mark.parametrize("runs", [[a_run("dense")], [a_run("fp16")]], ids=["dense alone", "no dense"])
def test_without_a_comparison_there_are_no_findings(runs):
    assert found(runs) == {}
