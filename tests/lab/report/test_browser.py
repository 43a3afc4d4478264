"""The page in a real browser: rendered at the width of a phone and of a desktop, and printed."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest

from tests.lab.report.sample_runs import a_run, comparison, decentralized_run, layered, saved
from tests.lab.report.test_page import PLOTS
from thinwire.lab import report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"),
)
ERRORS = """<script>
window.probed = [];
window.addEventListener("error", event => window.probed.push(String(event.message)));
console.error = console.warn = (...parts) => window.probed.push(parts.join(" "));
</script>"""
# A frame can be as narrow as a phone, a browser window cannot.
FRAME = """<!doctype html><iframe src="probed.html" style="width:{width}px;height:900px;border:0"></iframe><pre></pre>
<script>onmessage = event => document.querySelector("pre").textContent = event.data</script>"""
PROBE = (Path(__file__).parent / "probe.js").read_text("utf-8")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")


def browse(folder: Path, page: Path, *flags: str) -> str:
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'profile'}", *flags, page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module", params=[390, 1280], ids=["phone", "desktop"])
def probe(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    runs = [*comparison(), *(a_run(f"a long name for method {i}", ratio=2.0 + i, link="1gbit") for i in range(14))]
    runs += [a_run(label, ratio=2.0, link="10mbit") for label in ("fp16", "sign")]
    runs += [layered("dense", many=True, link="10mbit"), layered("powersgd", ratio=40.0, link="10mbit")]
    runs.append(decentralized_run("powergossip", ratio=50.0, link="10mbit"))
    runs.append(decentralized_run("choco", distances=(1e-2, 1e-3, 1e-6, 1e-8), ratio=60.0, link="10mbit"))
    text = report.write(saved(folder, runs)).read_text("utf-8")
    probed = folder / "probed.html"
    probed.write_text(text.replace("<head>", "<head>" + ERRORS).replace("</body>", f"<script>{PROBE}</script></body>"))
    frame = folder / "frame.html"
    frame.write_text(FRAME.format(width=request.param))
    dom = browse(folder, frame, "--window-size=1400,1000", "--virtual-time-budget=5000", "--dump-dom")
    probe = json.loads(unescape(re.search(r"<pre>(.*?)</pre>", dom, re.DOTALL)[1]))
    assert probe["width"] == request.param
    return probe


def test_the_page_renders_without_errors_and_loads_nothing(probe):
    assert probe["errors"] == []
    assert probe["loaded"] == []


def test_every_plot_is_rendered_and_no_text_is_clipped(probe):
    expected = [f"task-{task}-{plot}" for task in (1, 2, 3) for plot in PLOTS]
    expected.insert(expected.index("task-3-loss-examples") + 1, "task-3-consensus")
    expected += [f"task-3-layer-{what}-{number}" for number in (1, 4) for what in ("ratio", "residual")]
    assert list(probe["figures"]) == expected
    for name, figure in probe["figures"].items():
        assert figure["width"] > 250, name
        assert figure["height"] > 100, name
        assert figure["drawn"] > 12, name
        assert figure["cut"] == [], name


def test_the_page_is_not_wider_than_the_screen(probe):
    assert probe["overflow"] <= 0


def test_the_table_shows_the_figures_of_the_runs(probe):
    head, *rows = probe["tables"]
    shown = {row[0]: dict(zip(head, row, strict=True)) for row in rows[:4]}
    assert shown["powersgd"]["accuracy"] == "90.0% ± 1.0"
    assert shown["powersgd"]["payload / step"] == "25.0 kB"
    assert shown["powersgd"]["ratio"] == "40.0x"
    assert shown["powersgd"]["time / step"] == "100.0 ms"
    assert shown["<b>&tiny"]["ratio"] == "125.0x"


def test_a_tooltip_shows_the_values_of_lines(probe):
    assert "powersgd" in probe["tip"] or "dense" in probe["tip"]
    assert re.search(r"\d+\.\d%", probe["tip"])
    assert "tipAfter" not in probe, "it disappears"


def test_a_method_can_be_hidden_and_shown_again(probe):
    before, hidden, after = probe["shown"]
    assert before == after >= len(PLOTS)
    assert hidden == 0


def test_a_method_is_hidden_with_its_layers_and_a_layer_of_its_name_is_not(probe):
    assert probe["layers"] == [[True, True], [False, True]]


def test_the_page_can_be_printed(tmp_path):
    page = report.write(saved(tmp_path, comparison()))
    browse(tmp_path, page, f"--print-to-pdf={tmp_path / 'page.pdf'}")
    pdf = (tmp_path / "page.pdf").read_bytes()
    assert pdf.startswith(b"%PDF")
    pages = len(re.findall(rb"/Type\s*/Page\b", pdf))
    assert 2 <= pages <= 5
