from tests.lab.report.sample_runs import a_run, decentralized_run
from thinwire.lab.report import rank_section as ranks
from thinwire.lab.report.page import page
from thinwire.lab.report.summary import sections

LAYERS = [
    {"name": "features.3", "kind": "conv", "rows": 64, "columns": 288},
    {"name": "head", "kind": "dense", "rows": 10, "columns": 64},
]
CHANGES = [
    {"step": 1, "ranks": {"features.3": None, "head": None}},
    {"step": 20, "ranks": {"features.3": 32, "head": 10}},
    {"step": 60, "ranks": {"features.3": None, "head": None}},
    {"step": 80, "ranks": {"features.3": 16, "head": 5}},
]


def factored(changes=CHANGES):
    run = decentralized_run("ab")
    run.steps, run.parameters = 100, 20_000
    run.factored = {"layers": LAYERS, "changes": changes, "parameters": 5_000}
    return run


def section_of(run):
    (section,) = sections([run])
    return section


def test_the_sentence_has_the_phases_and_the_parameters_at_the_end():
    section = section_of(factored())
    assert ranks.sentence(section.entries[0]) == (
        "full-rank at first, factored after step 20, full-rank after step 60, factored after step 80. With low-rank "
        "layers, the model at the end has 5,000 of 20,000 parameters (4.0x fewer)."
    )


def test_of_many_changes_the_rest_is_counted():
    changes = [{"step": 10 * i + 1, "ranks": {"features.3": i or None, "head": i or None}} for i in range(9)]
    assert "after step 51, and 3 more changes." in ranks.sentence(section_of(factored(changes)).entries[0])


def test_ranks_are_plotted_relative_to_full_rank_for_each_factored_phase():
    section = section_of(factored())
    (plot,) = ranks.plots(section)
    assert plot.title == "ab: rank of factored layers"
    assert dict(plot.legend).keys() == {"conv", "dense"}
    group = next(group for group in ranks.layers.groups([layer | {"elements": 1} for layer in LAYERS]))
    assert ranks._shares(section.entries[0].runs[0], group) == [(20.0, 0.5), (60.0, 0.5), (80.0, 0.25), (100.0, 0.25)]


def test_the_page_has_the_sentence_and_the_plot():
    text = page(sections([factored(), a_run()]))
    assert "Factored layers" in text
    assert "rank of factored layers" in text
    assert "Factored layers" not in page(sections([a_run()]))
