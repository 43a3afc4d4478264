import pytest

from tests.lab.report.sample_runs import a_run, comparison
from thinwire.lab.report.charts import curves
from thinwire.lab.report.columns import columns
from thinwire.lab.report.findings import findings
from thinwire.lab.report.summary import sections


def found(runs, target=None):
    (section,) = sections(runs, target)
    return {finding.figure: finding for finding in findings(section)}


def test_the_smallest_good_one_the_soonest_and_the_smallest_of_all():
    told = found(comparison(), target=0.85)
    assert list(told) == ["40.0x smaller", "2.00x sooner", "125.0x smaller"]
    assert [finding.method for finding in told.values()] == ["powersgd", "powersgd", "<b>&thin"]
    assert "90.0% at the end, dense 90.0%" in told["40.0x smaller"].sentence


def test_when_nothing_is_sooner_than_dense_that_is_said():
    told = found([a_run("dense", seconds=10.0), a_run("fp16", seconds=20.0, ratio=2.0)], target=0.5)
    assert "2.00x later" in told
    assert "No method" in told["2.00x later"].sentence


def test_modelled_time_is_called_so():
    told = found([a_run("dense", modeled=True), a_run("fp16", seconds=10.0, modeled=True)], target=0.5)
    assert "modeled" in told["2.00x sooner"].sentence


def test_a_rank_that_trains_alone_has_no_bytes_to_compare():
    (section,) = sections([a_run("dense"), a_run("alone", variant="alone")])
    assert [entry.label for entry in section.senders] == ["dense"]
    assert [curve.label for curve in curves.metrics(section, "payload_bytes")] == ["dense"]
    assert [curve.label for curve in curves.metrics(section, "seconds")] == ["dense", "alone"]
    (smaller,) = (column for column in columns(section) if column.name(section) == ("smaller",))
    assert [smaller.say(section, entry) for entry in section.entries] == ["1.0x", "-"]


def test_a_rank_that_trains_alone_is_no_finding():
    alone = a_run("alone", method="Average()", variant="alone", seconds=1.0)
    told = found([a_run("dense"), alone, a_run("fp16", seconds=10.0, ratio=2.0)], target=0.5)
    assert {finding.method for finding in told.values()} == {"fp16"}
    assert found([a_run("dense"), alone]) == {}


@pytest.mark.parametrize("runs", [[a_run("dense")], [a_run("fp16")]], ids=["dense alone", "no dense"])
def test_without_a_comparison_there_is_nothing_to_find(runs):
    assert found(runs) == {}
