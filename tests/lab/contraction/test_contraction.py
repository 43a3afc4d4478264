"""What `thinwire contraction` tells: of numbers that follow laws, and of gradients of a run."""

import json
from pathlib import Path

import pytest
import torch

from tests.lab.fit.test_fit import drawn, saved
from tests.lab.report.parsed import Page
from thinwire import TopK, parse
from thinwire.cli import main
from thinwire.lab import contraction, report
from thinwire.lab.contraction.contraction_page import page, plot
from thinwire.lab.contraction.sources import LAWS
from thinwire.wire import payload

METHODS = ("TopK(0.1)", "Dither(7)", "ErrorFeedback(Dither(7))", "Sign()", "int8", "PowerSGD(1)", "EF21(Quantize(4))")


@pytest.fixture(scope="module")
def study() -> contraction.Study:
    return contraction.study(METHODS, contraction.of_laws(3000), draws=20)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    first = {"one.weight": drawn(1.0, (40, 50), 1), "bias": drawn(1.0, (20,), 2)}
    folder: Path = saved(tmp_path_factory.mktemp("run"), first, {name: 2 * x for name, x in first.items()})
    return folder


def by_method(study: contraction.Study) -> dict[str, contraction.measure.Measured]:
    return {measured.method: measured for measured in study.measured}


def test_errors_and_bits_are_those_of_the_codec(study: contraction.Study) -> None:
    lost, entries, nbytes = 0.0, 0, 0
    for sample in study.source.samples():
        x, codec = sample.tensor, TopK(0.1)
        buffer = payload.encode(x, codec, 0)
        lost += float((payload.decode(buffer, codec, 0, x) - x).double().square().sum())
        entries, nbytes = entries + x.numel(), nbytes + buffer.numel()
        assert float(x.square().sum()) == pytest.approx(1)
    told = by_method(study)["TopK(0.1)"].overall
    assert told.error == pytest.approx(lost / len(LAWS), rel=1e-5)
    assert told.bits == pytest.approx(8 * nbytes / entries)
    assert told.entries == entries == 9000


def test_no_error_is_above_its_bound(study: contraction.Study) -> None:
    bounded = 0
    for measured in study.measured:
        for figures in (measured.overall, *measured.kinds.values(), *measured.steps.values()):
            if figures.bound is not None:
                bounded += 1
                assert figures.error <= figures.bound + 6 * figures.give_or_take
    assert bounded == 6 * (2 + len(LAWS))  # all but PowerSGD's


def test_twins_differ_as_they_should(study: contraction.Study) -> None:
    told = by_method(study)
    unbiased, shrunk = told["Dither(7)"], told["ErrorFeedback(Dither(7))"]
    assert unbiased.unbiased
    assert not shrunk.unbiased
    assert unbiased.overall.error > 1 > shrunk.overall.error
    assert unbiased.overall.bits == shrunk.overall.bits
    assert told["PowerSGD(1)"].overall.bits < 2
    assert told["int8"].overall.error < 1e-3


@pytest.mark.parametrize(
    ("method", "draws"), [("Sign()", 1), ("AdaptiveRandom()", 7), ("ErrorFeedback(PowerSGD(1))", 7)]
)
def test_only_what_draws_is_drawn_again(method: str, draws: int, monkeypatch: pytest.MonkeyPatch) -> None:
    said = []
    real = contraction.measure._said
    monkeypatch.setattr(contraction.measure, "_said", lambda *given: said.append(given) or real(*given))
    contraction.study([method], contraction.of_laws(16), draws=7)
    assert len(said) == draws * len(LAWS)


def test_gradients_of_a_run_are_told_by_kind_and_by_step(folder: Path) -> None:
    study = contraction.study(["TopK(0.1)", "Sign()"], contraction.of_run(folder), draws=1)
    assert study.kinds == ["dense"]
    assert study.steps == [1, 50]
    for measured in study.measured:
        assert measured.steps[1].error == pytest.approx(measured.steps[50].error)
        assert measured.overall.entries == 2 * (2000 + 20)


def test_the_page_shows_all_and_the_report_takes_it_up(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["contraction", "TopK(0.1)", "Sign()", "Quantize(4)", "--on", str(folder)]) == 0
    told = capsys.readouterr().out
    assert "TopK(0.1)" in told
    assert "contraction.html" in told
    shown = Page((folder / "contraction.html").read_text())
    text = " ".join(shown.text.split())
    for word in ("TopK(0.1)", "Quantize(4)", "step 1", "step 50", "drawn <b>: error against bits"):
        assert word in text
    (found,) = report.fitted.read(folder)
    assert found.heading == "What methods lose of gradients"
    assert 'id="contraction-1-plane"' in found.markup


def test_the_plot_joins_what_nothing_beats(study: contraction.Study) -> None:
    drawing = plot(study).drawing
    assert drawing.count('class="place unbeaten"') >= 2
    assert drawing.count('class="place') == len(METHODS)
    assert "<h1>Error against bits</h1>" in page(study)


def test_json_has_every_figure(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["contraction", "Sign()", "--size", "100", "--json", "--out", str(tmp_path)]) == 0
    told = json.loads(capsys.readouterr().out)
    (measured,) = told["methods"]
    assert measured["overall"]["bits"] == pytest.approx(8 * (13 + 4) / 100)  # the signs, and a scale
    assert set(measured["kinds"]) == set(LAWS)


def test_the_family_can_be_read() -> None:
    assert len(set(contraction.FAMILY)) == len(contraction.FAMILY)
    for notation in contraction.FAMILY:
        parse(notation)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (["dpsgd"], "is not about one gradient at a time"),
        (["Sign()", "--draws", "0"], "1 draw or more"),
        (["Sign()", "--size", "0"], "1 entry or more"),
        (["Sign()", "--on", "nowhere"], "holds no gradients"),
        (["Sgn()"], "Sgn"),
    ],
)
def test_what_is_wrong_is_said(said: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["contraction", *said]) == 2
    assert told in capsys.readouterr().err


def test_gradients_that_are_all_zero_are_said_to_be(tmp_path: Path) -> None:
    saved(tmp_path / "zeros", {"weight": torch.zeros(3, 3)})
    with pytest.raises(ValueError, match="no gradient that is finite and not zero"):
        contraction.study(["Sign()"], contraction.of_run(tmp_path / "zeros"), draws=1)
