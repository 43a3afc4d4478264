import copy

import pytest

from tests.lab.recording.test_record import recorded
from tests.lab.report.parsed import Page
from tests.lab.report.sample_runs import STEPS, a_run, saved
from tests.lab.report.test_report_table import printed
from thinwire.cli import main
from thinwire.lab import report
from thinwire.lab.links import Link
from thinwire.lab.report.page import page as page_of
from thinwire.lab.report.summary import sections

SLOW, FAST = Link.parse("10mbit"), Link.parse("100mbit")


def unlinked(label="dense", counted=True, link_bytes=1_500_000 * STEPS, **changes):
    """A run without a link of 20 s, whose busiest rank carried 1.5 MB per step, and rank 0 half of that."""
    run = a_run(label, **({"link": None, "transport": "simulated"} | changes))
    run.bytes = {"dense": run.bytes["dense"], "payload": run.bytes["payload"], "link": link_bytes}
    if counted:
        for point in (*run.history, *run.evaluations):
            point["link_bytes"] = link_bytes * point["step"] // STEPS // 2
    return run


def test_the_time_on_a_link_is_that_of_the_busiest_rank_plus_the_measured_time():
    (run,) = report.on_links([unlinked()], [FAST])
    # 1.5 MB per step are 12 Mbit: 0.12 s per step on 100 Mbit/s, 12 s in all.
    assert (run.link, run.modeled) == ("100mbit", True)
    assert run.seconds["exchange"] == pytest.approx(12.0)
    assert run.seconds["total"] == pytest.approx(20.0 + 12.0)
    assert run.seconds["compute"] == 8.0
    assert [point["seconds"] for point in run.evaluations] == pytest.approx([8.0, 16.0, 24.0, 32.0])
    assert [point["seconds"] for point in run.history[:2]] == pytest.approx([0.32, 0.64])
    assert run.warnings == []


def test_the_slower_direction_determines_the_time():
    (run,) = report.on_links([unlinked()], [Link.parse("1gbit/10mbit")])
    assert run.seconds["exchange"] == pytest.approx(120.0)
    assert run.link == "1gbit/10mbit"


@pytest.mark.parametrize("others", [(), (2000,), (500,)], ids=["alone", "another is busier", "rank 0 is busiest"])
def test_the_time_equals_that_of_a_run_made_with_a_modeled_link(others):
    settings = {"transport": "simulated", "others": others, "evaluations": 4}
    expected = recorded(10, link="1mbit/2mbit", modeled=True, **settings)
    plain = recorded(10, **settings)
    plain.bytes["link"] = 10 * max(1000, *others, 0)
    (run,) = report.on_links([plain], [Link.parse("1mbit/2mbit")])
    assert (run.link, run.modeled) == (expected.link, expected.modeled)
    assert run.seconds == pytest.approx(expected.seconds)
    for ours, theirs in ((run.history, expected.history), (run.evaluations, expected.evaluations)):
        assert [point["seconds"] for point in ours] == pytest.approx([point["seconds"] for point in theirs])


def test_the_given_runs_are_not_modified():
    run = unlinked()
    before = copy.deepcopy(run)
    report.on_links([run], [FAST])
    assert run == before


def test_every_link_has_a_section_and_runs_with_a_link_keep_it():
    with_link = a_run("dense", link="20mbit", transport="simulated", modeled=True)
    runs = report.on_links([with_link, unlinked(), unlinked("fp16")], [SLOW, FAST, Link.parse("0.1gbit")])
    assert [section.first.link for section in sections(runs)] == ["10mbit", "100mbit", "20mbit"]
    assert [len(section.entries) for section in sections(runs)] == [2, 2, 1]
    assert runs[-1] is with_link


def test_without_links_the_runs_are_returned_unchanged():
    runs = [unlinked(), a_run()]
    assert report.on_links(runs, []) == runs


def test_a_run_that_exchanges_nothing_takes_no_time_on_a_link():
    (run,) = report.on_links([unlinked("alone", link_bytes=0, variant="alone")], [SLOW])
    assert run.seconds["exchange"] == 0
    assert run.seconds["total"] == pytest.approx(20.0)


@pytest.mark.parametrize("payload", [1_000_000 * STEPS, 0])
def test_old_runs_are_modeled_from_their_payload_with_a_warning(payload):
    old = unlinked(counted=False)
    old.bytes["payload"] = payload
    (run,) = report.on_links([old], [FAST])
    assert run.seconds["exchange"] == pytest.approx(12.0)
    assert [point["seconds"] for point in run.evaluations] == pytest.approx([8.0, 16.0, 24.0, 32.0])
    assert "no link bytes by step" in Page(page_of(sections([run]))).text


def test_runs_with_no_history_have_a_total():
    (run,) = report.on_links([unlinked(history=[], evaluated=False)], [FAST])
    assert run.seconds["total"] == pytest.approx(32.0)


def test_modeled_times_are_labeled_in_the_terminal_and_on_the_page():
    runs = report.on_links([unlinked(), unlinked("fp16", ratio=2.0)], [FAST])
    text = printed(runs)
    assert text.strip().splitlines()[0].strip() == "digits-cnn, 4 ranks, simulated, 100 Mbit/s (modeled)"
    assert "Modeled: the time on the link was computed" in text
    page = Page(page_of(sections(runs)))
    assert "time / step modeled" in page.tables[0][0]
    assert "training time, modeled" in page.text
    assert "Times on the link are modeled" in page.text


def test_a_star_and_runs_that_all_have_links_are_errors():
    with pytest.raises(ValueError, match=r"star:10mbit cannot be modeled from finished runs"):
        report.on_links([unlinked()], [Link.parse("star:10mbit")])
    with pytest.raises(ValueError, match="all runs have a link of their own"):
        report.on_links([a_run()], [FAST])


def test_the_command_accepts_links_in_one_or_several_flags(tmp_path, capsys):
    saved(tmp_path, [unlinked(), unlinked("fp16")])
    assert main(["report", str(tmp_path), "--link", "10mbit", "100mbit", "--link", "1gbit"]) == 0
    printed = capsys.readouterr().out
    page = Page((tmp_path / report.PAGE).read_text("utf-8"))
    for rate in ("10 Mbit/s", "100 Mbit/s", "1 Gbit/s"):
        heading = f"digits-cnn, 4 ranks, simulated, {rate}"
        assert f"{heading} (modeled)" in printed
        assert heading in page.text
    assert len(page.tables) == 3
    assert "2 methods, 2 training runs, thinwire" in page.text, "a run on several links counts once"


@pytest.mark.parametrize(
    ("link", "message"), [("wet string", "'wet string' is not a link"), ("star:10mbit", "cannot be modeled")]
)
def test_a_bad_link_is_an_error_and_writes_no_page(tmp_path, capsys, link, message):
    saved(tmp_path, [unlinked()])
    assert main(["report", str(tmp_path), "--link", link]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / report.PAGE).exists()


def test_step_times_measured_over_the_link_are_preferred_to_a_model():
    full = unlinked(transport="simulated")
    short = a_run("dense", link="100mbit", transport="processes", steps=10)
    short.seconds = {"total": 5.0, "compute": 1.0, "encode": 0.5, "exchange": 3.0, "decode": 0.5}
    run, kept = report.on_links([full, short], [FAST])
    assert kept == short
    assert (run.link, run.modeled, run.transport) == ("100mbit", False, "simulated")
    assert run.seconds == pytest.approx({part: 10 * seconds for part, seconds in short.seconds.items()})
    assert run.evaluations[-1]["seconds"] == pytest.approx(0.5 * STEPS)
    assert "measured over this link" in run.warnings[-1]
    assert "no time is counted" not in printed([run])
    assert "nothing was exchanged" not in page_of(sections([run]))
    for other in ({"batch": 64}, {"ranks": 2}, {"link": "10mbit"}, {"modeled": True}, {"method": "TopK(0.5)"}):
        unlike = a_run("dense", **({"link": "100mbit", "transport": "processes", "steps": 10} | other))
        assert report.on_links([full, unlike], [FAST])[0].modeled, other


def test_times_of_one_comparison_are_all_measured_or_all_modeled():
    full = [unlinked("dense"), unlinked("topk", method="TopK(0.5)")]
    short = a_run("dense", link="100mbit", transport="processes", steps=10)
    assert [run.modeled for run in report.on_links([*full, short], [FAST])] == [True, True, False]
    other = a_run("topk", method="TopK(0.5)", link="100mbit", transport="processes", steps=10)
    assert [run.modeled for run in report.on_links([*full, short, other], [FAST])] == [False] * 4
