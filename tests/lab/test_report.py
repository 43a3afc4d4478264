import io

import pytest
from rich.console import Console

from tests.lab.test_runs import example
from thinwire.lab import report

RUNS = {"dense": example(), "<b>thin": example(bytes={"dense": 2000, "payload": 20, "link": 30}, ratio=100.0)}


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (123_456, "123 kB"), (44_700_000, "44.7 MB"), (2.5e9, "2.50 GB")],
)
def test_bytes_are_shown_in_units_people_read(nbytes, text):
    assert report.human(nbytes) == text


def test_the_table_fits_a_terminal_and_tells_each_run():
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(report.table(RUNS))
    text = console.export_text()
    assert "…" not in text, "nothing is cut off at 80 columns"
    assert "50.0%" in text
    assert "100.0x" in text
    assert "1.5 kB" not in text, "bytes are per step"
    assert "750 B" in text


def test_the_page_holds_the_picture_and_escapes_names(tmp_path):
    report.write(RUNS, tmp_path, command="thinwire demo")
    page = (tmp_path / "report.html").read_text()
    assert (tmp_path / report.PICTURE).read_bytes().startswith(b"\x89PNG")
    assert "data:image/png;base64," in page
    assert "&lt;b&gt;thin" in page
    assert "<b>thin" not in page


def test_smoothing_starts_at_the_first_loss_and_follows_the_mean():
    assert report.smoothed([2.0])[0] == 2.0
    assert report.smoothed([1.0] * 50)[-1] == pytest.approx(1.0)
    assert 1.0 < report.smoothed([1.0, 2.0])[-1] < 2.0
