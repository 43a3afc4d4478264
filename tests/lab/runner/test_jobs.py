import io

import pytest
from rich.console import Console

from tests.lab.sample_tasks import called
from thinwire.lab import links
from thinwire.lab.runner import jobs
from thinwire.lab.runner.plan import PlanError
from thinwire.lab.runner.study import cells_of, jobs_in

SETTINGS = {"workload": called("Tiny"), "ranks": 2, "transport": "simulated", "steps": 3}


def test_a_comparison_has_a_run_for_each_method_and_seed(tmp_path):
    planned = jobs_in(cells_of(SETTINGS | {"methods": ["dense", "TopK(0.5)"], "seeds": 2, "seed": 7}, tmp_path), {}, {})
    assert [(job.plan.method, job.plan.seed) for job in planned] == [
        ("dense", 7),
        ("TopK(0.5)", 7),
        ("dense", 8),
        ("TopK(0.5)", 8),
    ]
    assert planned[1].folder == tmp_path / "TopK-0.5" / "seed-7"
    assert len({job.folder for job in planned}) == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "needs methods"),
        ({"methods": []}, "needs methods"),
        ({"methods": "dense"}, r"methods takes a list such as \['dense', 'topk'\], not 'dense'"),
        ({"methods": ["dense", "dense"]}, "dense is given twice"),
        ({"methods": ["dense"], "seeds": 0}, "seeds takes a number of seeds, 1 or more, or a list of seeds, not 0"),
        ({"methods": ["dense"], "method": "dense"}, "takes methods, not a method"),
        ({"methods": ["dense"], "rank": 2}, "did you mean 'ranks'"),
    ],
)
def test_a_mistake_in_a_comparison_is_an_error(settings, message, tmp_path):
    with pytest.raises(PlanError, match=message):
        cells_of(SETTINGS | settings, tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "topkk"}, "did you mean 'topk'"),
        ({"method": "TopK(7)"}, "between 0 and 1"),
        ({"method": "Gossip(Identity(), Hypercube())", "ranks": 3}, "a hypercube has 2, 4, 8, ... ranks, not 3"),
        ({"workload": "cifar10-resnet2"}, "did you mean 'cifar10-resnet20'"),
        ({"workload": called("Nothing")}, "Nothing"),
        ({"link": "fast"}, "'fast' is not a link"),
        ({"shards": "dirichlet:0"}, "dirichlet"),
        ({"ranks": 99}, "a batch of 16 cannot be divided among 99 ranks"),
        ({"method": "Server(Sign(), Sign(), rank=2)"}, "has a server at rank 2, but there are only 2 ranks"),
        ({"method": "Server(Sign(), Sign(), dedicated=True)", "ranks": 1}, "needs ranks that train"),
        ({"method": "LocalSGD(Server(Sign(), Sign(), dedicated=True))"}, "needs a method that averages gradients"),
        ({"method": "Server(Sign(), Sign(), rank=1)", "link": "star:1mbit"}, "in the middle of star:1mbit is rank 0"),
        ({"link": "star:1mbit", "ranks": 1}, "has rank 0 in the middle, and there is no other rank"),
        ({"method": "Server(Sign(), Sign(), dedicated=True)", "capture": 1}, "rank 0 is a dedicated server"),
    ],
)
def test_a_plan_that_cannot_be_run_is_an_error_before_anything_runs(settings, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        jobs.make([jobs.job_of(SETTINGS | {"method": "topk"} | settings, tmp_path / "out")], Console(quiet=True))
    assert not (tmp_path / "out").exists()


def test_a_dedicated_server_does_not_hide_an_error_of_plans_without_one(tmp_path):
    methods = {"methods": ["dense", "Server(Sign(), Sign(), dedicated=True)"]}
    with pytest.raises(PlanError, match="a batch of 4 cannot be divided among 5 ranks"):
        jobs.make_study(cells_of(SETTINGS | methods | {"ranks": 5, "batch": 4}, tmp_path), Console(quiet=True))


def test_the_error_for_an_impossible_link_suggests_the_modeled_time(tmp_path, monkeypatch):
    monkeypatch.setattr(links, "possible", lambda: "there are no namespaces")
    settings = SETTINGS | {"method": "topk", "transport": "processes", "link": "100mbit"}
    with pytest.raises(PlanError, match=r"100mbit cannot be created here: there are no namespaces\. With --modeled"):
        jobs.make([jobs.job_of(settings, tmp_path)], Console(quiet=True))


def test_modeled_runs_are_marked_as_modeled(tmp_path):
    job = jobs.job_of(SETTINGS | {"method": "topk", "link": "1mbit"}, tmp_path)
    (run,) = jobs.make([job], Console(quiet=True))
    assert run.modeled
    assert run.link == "1mbit"
    assert run.seconds["exchange"] == pytest.approx(run.bytes["link"] * 8 / 1e6)


def test_progress_shows_loss_metric_and_bytes(tmp_path):
    console = Console(record=True, width=120, force_terminal=True, file=io.StringIO())
    cells = cells_of(SETTINGS | {"methods": ["dense", "fp16"]}, tmp_path)
    jobs.make_study(cells, console)
    jobs.make_study(cells, console)
    shown = console.export_text()
    assert "loss" in shown
    assert "accuracy" in shown
    assert "kB" in shown
    assert "finished before, kept" in shown


def test_quiet_prints_nothing(tmp_path, capsys):
    jobs.make([jobs.job_of(SETTINGS | {"method": "topk"}, tmp_path)], Console(), quiet=True)
    assert capsys.readouterr().out == ""
