"""`thinwire fit`, on gradients sampled from known distributions and on those of a real run."""

import json

import numpy as np
import pytest
import torch

from tests.lab.report.parsed import Page
from thinwire.cli import main
from thinwire.distributions import GeneralizedNormal
from thinwire.lab import fit
from thinwire.lab.fit.code_lengths import CODES, ENTROPY, HUFFMAN, RANS, ZSTD, entropy
from thinwire.lab.fit.fit_findings import compared, findings
from thinwire.lab.fit.fit_study import DISTANCES, DISTRIBUTIONS, LEAST
from thinwire.lab.fit.fit_table import figures
from thinwire.lab.recording import captured
from thinwire.lab.runner.comparison import Job, run_all
from thinwire.lab.runner.plan import Plan

STEPS = (1, 50)
PARAMETERS = 12 * 8  # bits of a distribution's parameters, which some codes send


def sampled(shape, size, seed, scale=1e-3):
    """A gradient with entries sampled from a generalized normal distribution."""
    generator = torch.Generator().manual_seed(seed)
    shares = torch.rand(size, generator=generator, dtype=torch.float64)
    return GeneralizedNormal(shape, scale).quantile(shares).float()


def saved(folder, *steps, kind="dense"):
    """A run's folder with captured gradients: for each step, tensors by name."""
    (folder / "gradients").mkdir(parents=True)
    for step, tensors in zip(STEPS, steps, strict=False):
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        np.savez(folder / "gradients" / captured.file_of(step), **arrays)
    index = {
        "schema": 1,
        "workload": "sampled <b>",
        "method": "dense",
        "seed": 1,
        "batch": 64,
        "length": 50,
        "steps": STEPS[: len(steps)],
        "parameters": [{"name": name, "kind": kind, "shape": list(x.shape)} for name, x in steps[0].items()],
    }
    (folder / "gradients" / "index.json").write_text(json.dumps(index))
    return folder


def studied(folder, name="fp8-152", **settings):
    return fit.study(captured.read(folder), fit.form(name, **settings))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    first = {
        "half.weight": sampled(0.5, (100, 300), 1),
        "laplace.weight": sampled(1.0, (64, 8, 5, 5), 2),
        "normal.weight": sampled(2.0, (128, 128), 3),
        "bias": sampled(1.0, (512,), 4),
        "small.weight": sampled(1.0, (5, 5), 5),
    }
    last = first | {"half.weight": sampled(0.8, (100, 300), 6)}
    last["normal.weight"] = last["normal.weight"].clone()
    last["normal.weight"][:32] = 0
    return saved(tmp_path_factory.mktemp("sampled"), first, last)


@pytest.fixture(scope="module")
def steep(tmp_path_factory):
    """A run's folder with one layer at one step."""
    return saved(tmp_path_factory.mktemp("steep"), {"half.weight": sampled(0.5, (100, 300), 1)})


@pytest.fixture(scope="module")
def study(folder):
    return studied(folder)


@pytest.fixture(scope="module")
def text(study, tmp_path_factory):
    return fit.write(study, tmp_path_factory.mktemp("page") / "new").read_text("utf-8")


def layer(study, name):
    return next(layer for layer in study.layers if layer.name == f"{name}.weight")


def test_the_fit_recovers_the_distributions_that_entries_were_sampled_from(study):
    for name, first, last in (("half", 0.5, 0.8), ("laplace", 1.0, 1.0), ("normal", 2.0, 2.0)):
        fitted = layer(study, name)
        assert fitted.first.shape == pytest.approx(first, rel=0.05)
        assert fitted.last.shape == pytest.approx(last, rel=0.05)
        assert fitted.last.fits["gennorm"].distribution.scale == pytest.approx(1e-3, rel=0.08)
        assert fitted.last.fits["normal"].distribution.shape == 2
        assert fitted.last.fits["laplace"].distribution.shape == 1


def test_gennorm_is_nearest_to_entries_that_no_other_distribution_fits(study):
    for point in layer(study, "half").points:
        assert [point.nearest(which) for which in DISTANCES] == ["gennorm", "gennorm"]
        assert point.fits["gennorm"].kolmogorov < 0.01 < point.fits["laplace"].kolmogorov
    normal = layer(study, "normal").last
    assert normal.fits["normal"].wasserstein == pytest.approx(normal.fits["gennorm"].wasserstein, abs=0.02)
    assert normal.fits["laplace"].wasserstein > 3 * normal.fits["normal"].wasserstein


def test_zeros_are_reported_and_left_out_of_the_fit(study):
    fitted = layer(study, "normal")
    assert (fitted.first.zeros, fitted.last.zeros) == (0, 0.25)
    assert fitted.last.deviation == pytest.approx(fitted.first.deviation, rel=0.03)


def test_small_tensors_and_biases_are_skipped_with_a_reason(study):
    assert [fitted.name for fitted in study.layers] == ["half.weight", "laplace.weight", "normal.weight"]
    assert study.skipped.keys() == {"bias", "small.weight"}
    assert f"fewer than {LEAST} entries" in study.skipped["small.weight"]


@pytest.mark.parametrize(
    ("name", "scaled"),
    [("fp8-152", False), ("fp8-152", True), ("fp8-143", True), ("fp4-121", False), ("int8", False), ("int4", False)],
)
def test_code_lengths_are_in_order_for_every_quantizer(steep, name, scaled):
    (fitted,) = studied(steep, name, scaled=scaled).layers
    bits, slack = fitted.last.bits, PARAMETERS / fitted.entries + 0.002
    assert sorted(bits) == sorted(CODES)
    assert bits[ENTROPY] <= bits[RANS["gennorm"]] <= bits[HUFFMAN["gennorm"]] + slack
    assert bits[RANS["histogram"]] <= bits[HUFFMAN["histogram"]] + slack
    assert bits[HUFFMAN["gennorm"]] <= min(bits[HUFFMAN["normal"]], bits[HUFFMAN["laplace"]])
    assert bits[HUFFMAN["gennorm"]] < bits[ENTROPY] + 0.12


def test_a_fitted_shape_saves_bits_if_fixed_shapes_do_not_fit(study):
    bits = layer(study, "half").first.bits
    assert bits[HUFFMAN["gennorm"]] < bits[HUFFMAN["laplace"]] - 0.05 < bits[HUFFMAN["normal"]] - 0.2


def test_bits_of_the_scales_are_reported_separately(study, steep):
    assert {point.side for fitted in study.layers for point in fitted.points} == {0}
    half = studied(steep, "fp4-121").layers[0]
    assert half.last.side == 32 / half.entries
    assert studied(steep, "int8").layers[0].last.side == pytest.approx(32 / 512, rel=0.02)


def test_entropy_is_the_empirical_entropy_of_the_symbols():
    assert entropy(torch.tensor([0, 0, 1, 1, 2, 2, 3, 3], dtype=torch.uint8)) == 2
    assert entropy(torch.tensor([7, 7, 7], dtype=torch.uint8)) == 0


@pytest.mark.parametrize(("name", "count"), [("int4", 7), ("int4", 512), ("fp4-121", 333), ("int8", 9)])
def test_every_entry_has_a_symbol(name, count):
    quantized = fit.form(name).quantize(sampled(1.0, (count,), 0))
    assert quantized.symbols.numel() == count
    assert len(quantized.symbols.unique()) > 4


def test_means_over_all_layers_are_weighted_by_their_entries(study):
    first = study.overall[0]
    assert [overall.step for overall in study.overall] == list(STEPS)
    assert first.entries == sum(fitted.entries for fitted in study.layers)
    for code in CODES:
        expected = sum(fitted.entries * fitted.first.bits[code] for fitted in study.layers) / first.entries
        assert first.bits[code] == pytest.approx(expected)
    assert first.shape == layer(study, "laplace").first.shape
    assert all(sum(first.nearest[which].values()) == 3 for which in DISTANCES)


def test_a_layer_without_a_usable_gradient_at_a_step_is_skipped_there(tmp_path):
    x, dead, broken = sampled(1.0, (20, 50), 1), torch.zeros(20, 50), torch.full((20, 50), torch.nan)
    study = studied(saved(tmp_path, {"a": x, "b": dead, "c": x}, {"a": x, "b": x, "c": broken}))
    assert [[point.step for point in fitted.points] for fitted in study.layers] == [[1, 50], [50], [1]]
    assert "NaN" in study.skipped["c at step 50"]
    assert "not zero" in study.skipped["b at step 1"]
    assert [overall.layers for overall in study.overall] == [2, 2]
    distributions, *others = figures(study, study.layers)
    assert distributions.rows["b"][2] == "-" != distributions.rows["b"][3]
    assert distributions.rows["c"] == ("1,000", "-", distributions.rows["a"][2], "-", "-", "-")
    for other in others:
        assert set(other.rows["c"]) == {"-"}
        assert other.rows["a"] == other.rows["b"]
        assert "At step 50 of 50, the last captured step" in other.notes[0]


def test_figures_are_of_the_last_step_with_a_fit(tmp_path):
    study = studied(saved(tmp_path, {"a": sampled(1.0, (20, 50), 1)}, {"a": torch.zeros(20, 50)}))
    for table in figures(study, study.layers):
        assert "At step 1 of 50, the last step with a fit" in table.notes[0]


def test_the_page_loads_nothing_and_has_all_layers(study, text):
    page = Page(text)
    assert page.references == []
    assert "<b>" not in page.text.replace("sampled <b>", "")
    distributions, distances, bits = page.tables
    names = ["layer", *(fitted.name for fitted in study.layers), "all layers"]
    assert [[row[0] for row in table] for table in (distributions, distances, bits)] == [names] * 3
    half = layer(study, "half")
    assert distributions[1][3:5] == [f"{half.first.shape:.2f}", f"{half.last.shape:.2f}"]
    assert bits[1][1:] == [f"{half.last.bits[code]:.3f}" for code in CODES]
    assert bits[-1][1:] == [f"{study.overall[-1].bits[code]:.3f}" for code in CODES]
    assert "small.weight has fewer than 256 entries" in page.text


def test_the_page_has_all_plots(study, text):
    figures = Page(text).figures
    pairs = [f"fit-{what}-{number}" for number in (1, 2, 3) for what in ("density", "quantiles")]
    assert list(figures) == ["fit-shapes", "fit-bits", *pairs]
    for name in pairs:
        assert figures[name].count("polyline") >= len(DISTRIBUTIONS) + 1, (
            "the distributions, and the entries or the diagonal"
        )


def test_many_layers_are_plotted_by_kind(tmp_path):
    x = sampled(1.0, (16, 16), 1)
    study = studied(saved(tmp_path, {f"layer.{i}": x for i in range(10)}, kind="conv"))
    page = Page(fit.write(study, tmp_path).read_text("utf-8"))
    assert page.figures["fit-shapes"].count("polyline") == 11
    assert "Thick: the median over the layers of a kind" in page.text


def test_findings_match_the_study(study):
    nearest, shapes, bits = findings(study)
    counts = study.overall[-1].nearest["wasserstein"]
    assert counts["gennorm"] == max(counts.values())
    assert (nearest.figure, nearest.what) == (f"{counts['gennorm']} of 3", "layers are nearest to GenNorm")
    assert shapes.figure == f"{study.overall[-1].shape:.2f}"
    saved_bits = study.overall[-1].bits[HUFFMAN["normal"]] - study.overall[-1].bits[HUFFMAN["gennorm"]]
    assert bits.figure == f"{saved_bits:.3f} bits"
    assert [compared(x) for x in (0.1, -0.02, 0.0001)] == ["0.100 fewer than", "0.020 more than", "the same as"]


def test_the_command_prints_the_fit_of_a_real_run(tmp_path, capsys):
    plan = Plan("digits-cnn", "dense", ranks=2, transport="simulated", steps=6, capture=2)
    run_all([Job(plan, tmp_path)], lambda job, event: None)
    assert main(["fit", str(tmp_path), "--json", "--out", str(tmp_path / "out"), "--form", "int8"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (tmp_path / "out" / "fit.html").exists()
    assert not (tmp_path / "fit.html").exists()
    assert (printed["workload"], printed["form"], printed["steps"]) == ("digits-cnn", "int8", [1, 6])
    assert [[point["step"] for point in one["points"]] for one in printed["layers"]] == [[1, 6]] * len(
        printed["layers"]
    )
    for one in printed["layers"]:
        for point in one["points"]:
            assert 0.1 <= point["fits"]["gennorm"]["shape"] <= 20
            assert 0 < point["bits"][ENTROPY] <= point["bits"][RANS["gennorm"]] <= 8.2
            assert point["bits"][ZSTD] < 9
    assert main(["fit", str(tmp_path), "--layers", "1"]) == 0
    shown = capsys.readouterr().out
    largest = max(printed["layers"], key=lambda one: one["entries"])
    assert f"{largest['entries']:,}" in shown
    assert f"The 1 largest of {len(printed['layers'])} layers" in shown
    assert "the last captured step" in shown
    assert str(tmp_path / "fit.html") in shown.replace("\n", "")
    # The report of the run has both pages.
    assert main(["report", str(tmp_path)]) == 0
    page = Page((tmp_path / "report.html").read_text("utf-8"))
    assert page.references == []
    assert {"fit-1-shapes", "fit-1-bits", "fit-1-density-1", "fit-2-shapes"} <= set(page.figures)
    assert page.text.count("Gradients of digits-cnn") == 2
    (tmp_path / "fit.html").write_text("something else")
    assert main(["report", str(tmp_path)]) == 2
    assert "is not a page written by thinwire fit" in capsys.readouterr().err


def test_a_mistake_is_a_one_line_error(folder, tmp_path, capsys):
    empty, damaged, small = tmp_path / "empty", tmp_path / "damaged", tmp_path / "small"
    empty.mkdir()
    saved(small, {"tiny": sampled(1.0, (5, 5), 1)})
    saved(damaged, {"a": sampled(1.0, (20, 50), 1)})
    file = damaged / "gradients" / "step-000001.npz"
    file.write_bytes(file.read_bytes()[:500])
    for arguments, expected in (
        ([str(empty)], "`thinwire train --capture N` writes them"),
        ([str(damaged)], "step-000001.npz is damaged"),
        ([str(small)], "no weight to fit distributions to: tiny has fewer than 256 entries"),
        ([str(folder), "--form", "fp8-125"], "did you mean 'fp8-152'?"),
        ([str(folder), "--layers", "0"], "--layers must be 1 or more, not 0"),
    ):
        assert main(["fit", *arguments]) == 2
        output = capsys.readouterr()
        assert output.err.startswith("thinwire: ")
        assert expected in output.err
        assert output.out == ""
