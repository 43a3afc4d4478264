from tests.lab.report.parsed import Page
from tests.lab.report.sample_runs import a_run, decentralized_run
from tests.lab.report.test_report_table import printed
from thinwire.lab.report.best_step import best_steps, is_validated
from thinwire.lab.report.findings import findings
from thinwire.lab.report.page import page as page_of
from thinwire.lab.report.summary import sections


def validated(run, best_step):
    """The run with a validation set, on which it was best at this step."""
    for evaluation in run.evaluations:
        evaluation["validation_accuracy"] = 0.9 if evaluation["step"] == best_step else 0.5
    best = next(evaluation for evaluation in run.evaluations if evaluation["step"] == best_step)
    run.metrics |= {name: best[name] for name in ("test_accuracy", "validation_accuracy")}
    run.best_step = best_step
    return run


def test_a_run_is_validated_only_with_a_validation_set():
    assert is_validated(validated(a_run(), 75))
    assert not is_validated(a_run(best_step=100)), "the last step, of a run without a validation set"
    assert not is_validated(a_run())


def test_best_steps_of_several_seeds_are_a_range():
    runs = [validated(a_run(seed=seed), step) for seed, step in ((1, 75), (2, 50), (3, 100))]
    assert best_steps(runs) == "50 to 100"
    assert best_steps(runs[:1]) == "75"
    assert best_steps([a_run(best_step=100)]) == ""


def test_the_page_has_the_best_step_and_explains_the_metric():
    page = Page(page_of(sections([validated(a_run("dense"), 75), a_run("fp16", ratio=2.0)])))
    head, dense, half = page.tables[0]
    assert (dense[head.index("best step")], half[head.index("best step")]) == ("75", "-")
    assert dense[head.index("accuracy")] == "67.5%", "of that step"
    assert "test accuracy : on the test set, at the step with the best validation accuracy; higher" in page.text
    assert "at the end of training" not in page.text


def test_without_a_validation_set_the_metric_is_that_of_the_end():
    page = Page(page_of(sections([a_run(best_step=100)])))
    assert "best step" not in page.tables[0][0]
    assert "test accuracy : of the model at the end of training" in page.text
    assert "validation" not in page.text
    assert "validation" not in printed([a_run()])


def test_the_terminal_explains_the_metric_without_a_column():
    text = " ".join(printed([validated(a_run(), 75)]).split())
    assert "Test accuracy: on the test set, at the step with the best validation accuracy." in text
    assert "best step" not in text.lower()


def test_findings_are_at_the_best_step():
    runs = [validated(a_run("dense"), 100), validated(a_run("fp16", ratio=2.0), 100)]
    (section,) = sections(runs)
    assert "test accuracy 90.0% at the best step, dense 90.0%" in findings(section)[0].sentence


def test_consensus_distances_are_those_at_the_end():
    run = validated(decentralized_run("dpsgd", distances=(0.04, 0.03, 0.02, 0.01)), 50)
    run.metrics["consensus"] = 0.03
    (section,) = sections([run])
    assert section.entries[0].consensus_distance.mean == 0.01
