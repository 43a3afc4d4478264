"""`thinwire contraction`, on samples of known distributions and on captured gradients of a run."""

import json
from pathlib import Path

import pytest
import torch

from tests.lab.fit.test_fit import sampled, saved
from tests.lab.report.parsed import Page
from thinwire import TopK, parse
from thinwire.cli import main
from thinwire.lab import contraction, report
from thinwire.lab.contraction.contraction_page import page, plot
from thinwire.lab.contraction.sources import DISTRIBUTIONS
from thinwire.wire import payload

METHODS = ("TopK(0.1)", "Dither(7)", "ErrorFeedback(Dither(7))", "Sign()", "int8", "PowerSGD(1)", "EF21(Quantize(4))")


@pytest.fixture(scope="module")
def study() -> contraction.Study:
    return contraction.study(METHODS, contraction.of_distributions(3000), draws=20)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    first = {"one.weight": sampled(1.0, (40, 50), 1), "bias": sampled(1.0, (20,), 2)}
    folder: Path = saved(tmp_path_factory.mktemp("run"), first, {name: 2 * x for name, x in first.items()})
    return folder


def by_method(study: contraction.Study) -> dict[str, contraction.measure.Measured]:
    return {measured.method: measured for measured in study.measured}


def test_error_and_bits_equal_those_of_the_codec(study: contraction.Study) -> None:
    error, entries, nbytes = 0.0, 0, 0
    for sample in study.source.samples():
        x, codec = sample.tensor, TopK(0.1)
        buffer = payload.encode(x, codec, 0)
        error += float((payload.decode(buffer, codec, 0, x) - x).double().square().sum())
        entries, nbytes = entries + x.numel(), nbytes + buffer.numel()
        assert float(x.square().sum()) == pytest.approx(1)
    figures = by_method(study)["TopK(0.1)"].overall
    assert figures.error == pytest.approx(error / len(DISTRIBUTIONS), rel=1e-5)
    assert figures.bits == pytest.approx(8 * nbytes / entries)
    assert figures.entries == entries == 9000


def test_no_error_is_above_its_bound(study: contraction.Study) -> None:
    bounded = 0
    for measured in study.measured:
        for figures in (measured.overall, *measured.kinds.values(), *measured.steps.values()):
            if figures.bound is not None:
                bounded += 1
                assert figures.error <= figures.bound + 6 * figures.give_or_take
    assert bounded == 6 * (2 + len(DISTRIBUTIONS))  # all but PowerSGD's


def test_an_unbiased_codec_has_a_larger_error_than_with_error_feedback(study: contraction.Study) -> None:
    figures = by_method(study)
    unbiased, shrunk = figures["Dither(7)"], figures["ErrorFeedback(Dither(7))"]
    assert unbiased.unbiased
    assert not shrunk.unbiased
    assert unbiased.overall.error > 1 > shrunk.overall.error
    assert unbiased.overall.bits == shrunk.overall.bits
    assert figures["PowerSGD(1)"].overall.bits < 2
    assert figures["int8"].overall.error < 1e-3


@pytest.mark.parametrize(
    ("method", "draws"), [("Sign()", 1), ("AdaptiveRandom()", 7), ("ErrorFeedback(PowerSGD(1))", 7)]
)
def test_only_stochastic_methods_are_measured_several_times(
    method: str, draws: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = []
    real = contraction.measure._send
    monkeypatch.setattr(contraction.measure, "_send", lambda *args: sent.append(args) or real(*args))
    contraction.study([method], contraction.of_distributions(16), draws=7)
    assert len(sent) == draws * len(DISTRIBUTIONS)


def test_figures_of_a_run_are_split_by_kind_and_by_step(folder: Path) -> None:
    study = contraction.study(["TopK(0.1)", "Sign()"], contraction.of_run(folder), draws=1)
    assert study.kinds == ["dense"]
    assert study.steps == [1, 50]
    for measured in study.measured:
        assert measured.steps[1].error == pytest.approx(measured.steps[50].error)
        assert measured.overall.entries == 2 * (2000 + 20)


def test_the_page_shows_every_method_and_the_report_includes_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["contraction", "TopK(0.1)", "Sign()", "Quantize(4)", "--on", str(folder)]) == 0
    output = capsys.readouterr().out
    assert "TopK(0.1)" in output
    assert "contraction.html" in output
    shown = Page((folder / "contraction.html").read_text())
    text = " ".join(shown.text.split())
    for word in ("TopK(0.1)", "Quantize(4)", "step 1", "step 50", "sampled <b>: error against bits"):
        assert word in text
    (found,) = report.embedded_pages.read(folder)
    assert found.heading == "Compression error of methods"
    assert 'id="contraction-1-plane"' in found.markup


def test_the_plot_marks_the_pareto_front(study: contraction.Study) -> None:
    drawing = plot(study).drawing
    assert drawing.count('class="point on-front"') >= 2
    assert drawing.count('class="point') == len(METHODS)
    assert "<h1>Error against bits</h1>" in page(study)


def test_json_has_every_figure(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["contraction", "Sign()", "--size", "100", "--json", "--out", str(tmp_path)]) == 0
    output = json.loads(capsys.readouterr().out)
    assert set(output) == {"title", "description", "draws", "methods"}
    (measured,) = output["methods"]
    assert measured["overall"]["bits"] == pytest.approx(8 * (13 + 4) / 100)  # the signs, and a scale
    assert set(measured["kinds"]) == set(DISTRIBUTIONS)


def test_the_default_methods_can_be_parsed() -> None:
    assert len(set(contraction.FAMILY)) == len(contraction.FAMILY)
    for notation in contraction.FAMILY:
        parse(notation)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dpsgd"], "does not reduce one gradient at a time"),
        (["Sign()", "--draws", "0"], "draws must be 1 or more"),
        (["Sign()", "--size", "0"], "1 entry or more"),
        (["Sign()", "--on", "nowhere"], "holds no gradients"),
        (["Sgn()"], "Sgn"),
    ],
)
def test_a_wrong_argument_is_an_error(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["contraction", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_gradients_that_are_all_zero_are_an_error(tmp_path: Path) -> None:
    saved(tmp_path / "zeros", {"weight": torch.zeros(3, 3)})
    with pytest.raises(ValueError, match="no gradient that is finite and not zero"):
        contraction.study(["Sign()"], contraction.of_run(tmp_path / "zeros"), draws=1)
