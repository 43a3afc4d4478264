import io

import pytest
from rich.console import Console

from tests.lab.sample_tasks import called
from thinwire.lab import links
from thinwire.lab.runner import jobs as making
from thinwire.lab.runner.plan import PlanError
from thinwire.lab.runner.study import cells_of, jobs_in

SAID = {"workload": called("Tiny"), "ranks": 2, "transport": "simulated", "steps": 3}


def test_a_comparison_is_a_run_for_each_method_and_seed(tmp_path):
    jobs = jobs_in(cells_of(SAID | {"methods": ["dense", "TopK(0.5)"], "seeds": 2, "seed": 7}, tmp_path), {}, {})
    assert [(job.plan.method, job.plan.seed) for job in jobs] == [
        ("dense", 7),
        ("TopK(0.5)", 7),
        ("dense", 8),
        ("TopK(0.5)", 8),
    ]
    assert jobs[1].folder == tmp_path / "TopK-0.5" / "seed-7"
    assert len({job.folder for job in jobs}) == 4


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({}, "needs methods"),
        ({"methods": []}, "needs methods"),
        ({"methods": "dense"}, r"methods takes a list such as \['dense', 'topk'\], not 'dense'"),
        ({"methods": ["dense", "dense"]}, "dense is given twice"),
        ({"methods": ["dense"], "seeds": 0}, "seeds takes how many, 1 or more, or a list of them, not 0"),
        ({"methods": ["dense"], "method": "dense"}, "takes methods, not a method"),
        ({"methods": ["dense"], "rank": 2}, "did you mean 'ranks'"),
    ],
)
def test_a_mistake_in_a_comparison_is_shown(said, message, tmp_path):
    with pytest.raises(PlanError, match=message):
        cells_of(SAID | said, tmp_path)


@pytest.mark.parametrize(
    ("said", "message"),
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
        ({"link": "star:1mbit", "ranks": 1}, "has rank 0 in the middle, and there is no other"),
        ({"method": "Server(Sign(), Sign(), dedicated=True)", "capture": 1}, "rank 0 only serves"),
    ],
)
def test_what_cannot_be_run_is_found_before_anything_runs(said, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        making.make([making.job_of(SAID | {"method": "topk"} | said, tmp_path / "out")], Console(quiet=True))
    assert not (tmp_path / "out").exists()


def test_a_server_apart_does_not_hide_what_is_wrong_without_it(tmp_path):
    methods = {"methods": ["dense", "Server(Sign(), Sign(), dedicated=True)"]}
    with pytest.raises(PlanError, match="a batch of 4 cannot be divided among 5 ranks"):
        making.make_study(cells_of(SAID | methods | {"ranks": 5, "batch": 4}, tmp_path), Console(quiet=True))


def test_where_no_link_can_be_made_the_modelled_time_is_offered(tmp_path, monkeypatch):
    monkeypatch.setattr(links, "possible", lambda: "there are no namespaces")
    said = SAID | {"method": "topk", "transport": "processes", "link": "100mbit"}
    with pytest.raises(PlanError, match=r"100mbit cannot be made here: there are no namespaces\. With --modeled"):
        making.make([making.job_of(said, tmp_path)], Console(quiet=True))


def test_modelled_runs_say_so(tmp_path):
    job = making.job_of(SAID | {"method": "topk", "link": "1mbit"}, tmp_path)
    (run,) = making.make([job], Console(quiet=True))
    assert run.modeled
    assert run.link == "1mbit"
    assert run.seconds["exchange"] == pytest.approx(run.bytes["link"] * 8 / 1e6)


def test_progress_shows_loss_metric_and_bytes(tmp_path):
    console = Console(record=True, width=120, force_terminal=True, file=io.StringIO())
    cells = cells_of(SAID | {"methods": ["dense", "fp16"]}, tmp_path)
    making.make_study(cells, console)
    making.make_study(cells, console)
    shown = console.export_text()
    assert "loss" in shown
    assert "accuracy" in shown
    assert "kB" in shown
    assert "made before, kept" in shown


def test_quiet_is_quiet(tmp_path, capsys):
    making.make([making.job_of(SAID | {"method": "topk"}, tmp_path)], Console(), quiet=True)
    assert capsys.readouterr().out == ""
