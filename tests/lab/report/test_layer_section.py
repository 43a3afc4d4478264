import re
from math import hypot, isnan

import pytest

from tests.lab.report.parsed import Page
from tests.lab.report.sample_runs import a_layer, a_run, comparison, layered
from thinwire.lab.report import adaptation
from thinwire.lab.report import layer_section as layers
from thinwire.lab.report.names import MOST_LETTERS
from thinwire.lab.report.page import page
from thinwire.lab.report.summary import sections


def adapting():
    no_residual = [layer | {"residual": [None] * 4} for layer in layered("x").layers]
    return [layered("powersgd", ratio=40.0), layered("fp16", ratio=2.0, many=True), a_run("dense", layers=no_residual)]


def entry_of(*runs):
    ((entry,),) = [section.entries for section in sections(runs)]
    return entry


def test_the_ratio_is_that_since_the_previous_evaluation():
    layer = a_layer("a", elements=10, payload=(1000, 1500, 1500, 1600))
    one, two, nothing, four = layers.ratios([layer])
    assert (one, two, four) == (1.0, 2.0, 10.0)
    assert isnan(nothing), "nothing was sent, so there is no ratio"
    both = layers.ratios([layer, a_layer("b", elements=30, payload=(500, 1000, 1500, 2000))])
    assert both == [4000 / 1500, 4000 / 1000, 4000 / 500, 4000 / 600]


def test_the_residual_is_relative_to_the_gradient_of_layers_with_a_residual():
    no_residual = a_layer("c", residual=[None] * 4, gradient=100.0)
    assert layers.residual([a_layer("a"), no_residual]) == [0.5, 1.0, 1.5, 2.0]
    assert layers.residual([a_layer("a"), a_layer("b", residual=[0.0] * 4)]) == pytest.approx(
        [norm / hypot(2, 2) for norm in (1, 2, 3, 4)]
    )
    assert all(map(isnan, layers.residual([no_residual])))
    assert all(map(isnan, layers.residual([a_layer("a", gradient=0.0)])))


def test_few_layers_are_all_shown():
    found = layers.groups(layered("x").layers)
    assert [group.label for group in found] == ["features.0", "dense", "2 small ones"]
    assert [group.kind for group in found] == ["conv", "dense", "small ones"]


def test_of_many_layers_the_largest_are_shown_and_the_rest_by_kind():
    records = layered("x", many=True).layers
    found = layers.groups(records)
    assert len(found) < len(records) / 2
    assert sorted(name for group in found for name in group.names) == sorted(layer["name"] for layer in records)
    single = [group.names[0] for group in found if len(group.names) == 1]
    largest = sorted(records, key=lambda layer: -layer["elements"])[: layers.LARGEST]
    assert {layer["name"] for layer in largest} <= set(single)
    labels = {group.label: len(group.names) for group in found if len(group.names) > 1}
    assert labels == {"4 attention": 4, "4 other dense": 4, "9 other norm": 9}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["0.weight", "3.weight"], ["0.weight", "3.weight"]),
        (["a.bias,b.bias,c.bias"], ["3 small ones"]),
        (
            ["model.layer1.0.conv1.weight", "model.layer2.0.conv2.weight"],
            ["layer1.0.conv1", "layer2.0.conv2"],
        ),
        (
            ["transformer.encoder.0.self_attention.in_proj_weight", "transformer.encoder.1.mlp.fc1"],
            ["0.self…oj_weight", "1.mlp.fc1"],
        ),
        (["a,b", "c,d"], ["2 small ones", "2 small ones 2"]),
        (["very_long_name_of_one_layer"], ["very_l…one_layer"]),
    ],
    ids=["short", "fused", "blocks", "too long", "equal", "one word"],
)
def test_labels_are_short_and_unique(names, expected):
    found = list(layers.labels(dict.fromkeys(names, "small ones")).values())
    assert found == expected
    assert all(len(label) <= MOST_LETTERS for label in found)


def test_curves_are_means_over_the_seeds():
    runs = [layered("x", seed=1), layered("x", seed=2)]
    for layer in runs[1].layers:
        layer["payload_bytes"] = [3 * sent for sent in layer["payload_bytes"]]
    (group, curve), *_ = layers.lines(entry_of(*runs), layers.ratios)
    assert group.label == "features.0"
    assert [step for step, _ in curve.mean] == [25, 50, 75, 100]
    assert [ratio for _, ratio in curve.mean] == pytest.approx([2 / 3 * factor for factor in (100, 200, 400, 800)])


def test_layers_without_a_residual_have_no_curve():
    found = layers.lines(entry_of(layered("x")), layers.residual)
    assert [group.label for group, _ in found] == ["features.0", "dense"]


def test_methods_with_residuals_have_two_plots_each():
    (section,) = sections(adapting())
    plots = adaptation.plots(section)
    assert [plot.key for plot in plots] == ["layer-ratio-2", "layer-residual-2", "layer-ratio-3", "layer-residual-3"]
    assert [plot.method for plot in plots] == ["fp16", "fp16", "powersgd", "powersgd"]


def test_nearly_equal_values_are_plotted_close_together():
    same = [a_layer("a", payload=(100, 200, 300, 400)), a_layer("b", payload=(101, 202, 303, 404))]
    (section,) = sections([a_run("x", layers=same)])
    heights = re.findall(r'cy="([^"]*)"', adaptation.plots(section)[0].drawing)
    assert max(map(float, heights)) - min(map(float, heights)) < 5


def test_layers_without_a_residual_during_warm_up_are_plotted():
    late = [a_layer("a", residual=[None, None, 1.0, 2.0]), a_layer("b", payload=[0, 0, 0, 0], residual=[0.0] * 4)]
    (section,) = sections([a_run("x", layers=late)])
    ratio, residual = adaptation.plots(section)
    assert ratio.drawing.count("<circle") == 4
    assert residual.drawing.count("<circle") == 2


def test_layers_of_a_kind_share_a_color_and_differ_in_their_dashes():
    (section,) = sections([layered("x", many=True)])
    plot = adaptation.plots(section)[0]
    colors = dict(plot.legend)
    assert set(colors) == {"conv", "dense", "attention"}
    assert len(set(colors.values())) == 3
    styles = re.findall(r'style="--c:([^"]*)"><polyline points="[^"]*" class="line"([^>]*)>', plot.drawing)
    assert len(styles) == 8
    assert len(set(styles)) == len(styles)


def test_the_page_compares_kinds_of_layers_side_by_side():
    shown = Page(page(sections(adapting())))
    _, (head, *rows) = shown.tables
    assert head == ["compression ratio", "conv", "small ones", "all layers"]
    assert [row[0] for row in rows] == ["dense", "fp16", "powersgd"]
    cells = dict(zip(head, rows[2], strict=True))
    assert cells["all layers"] == "40.0x"
    assert cells["conv"] == f"{800_000 / (0.6 * 25_000):.1f}x"
    assert "Compression by layer" in shown.text
    assert [figure for figure in shown.figures if "layer" in figure] == [
        f"task-1-layer-{what}-{number}" for number in (2, 3) for what in ("ratio", "residual")
    ]


def test_runs_without_records_of_layers_have_no_such_section():
    shown = Page(page(sections(comparison())))
    assert "Compression by layer" not in shown.text
    assert len(shown.tables) == 1


def test_a_layer_named_like_a_method_is_not_that_method():
    text = page(sections([layered("dense"), layered("powersgd")]))
    assert '<figure id="task-1-layer-ratio-1" class="series" data-series="dense">' in text
    assert text.count('class="series" data-series="dense" style="--c:var(--k') >= 2
