import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from thinwire.cli.arguments import parser
from thinwire.cli.commands import request_of
from thinwire.lab.runner.plan import Plan, PlanError, plan_of, read_file

PLAN = Plan(
    workload="my task.py:It's",
    method="ErrorFeedback(TopK(0.01))",
    ranks=3,
    transport="simulated",
    link="50mbit/10mbit",
    modeled=True,
    steps=7,
    batch=12,
    shards="dirichlet:0.1",
    seed=5,
    threads=2,
    evaluations=3,
    data="some where",
    capture=4,
    straggler="1:2.5",
    lr_scale=0.3,
    warmup=0.05,
)
OTHERS = (
    replace(PLAN, steps=None, epochs=0.5),
    replace(PLAN, batch=None, batch_per_rank=8, capture=None, accumulate=4),
    Plan("digits-cnn", "dense", alone=True),
    Plan("digits-cnn", "dense"),
)


def test_a_plan_is_read_back_from_its_run_file(tmp_path):
    for plan in (PLAN, *OTHERS):
        file = tmp_path / "run.toml"
        file.write_text(plan.to_toml())
        assert plan_of(read_file(file)) == plan


def test_a_plan_is_read_back_from_its_command():
    import shlex

    for plan in (PLAN, *OTHERS):
        program, *arguments = shlex.split(plan.command())
        assert program == "thinwire"
        request = request_of(parser().parse_args(arguments))
        assert plan_of(request.settings) == plan
        assert request.out == Path("runs/again")


def test_the_run_file_contains_every_setting():
    assert set(tomllib.loads(PLAN.to_toml())) | {"epochs", "batch_per_rank"} == set(Plan.__dataclass_fields__)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ranks": 0}, "ranks takes an integer above 0, not 0"),
        ({"ranks": "4"}, "not '4'"),
        ({"ranks": True}, "not True"),
        ({"steps": 2.5}, "steps takes an integer above 0, not 2.5"),
        ({"capture": 0}, "capture takes an integer above 0, not 0"),
        ({"epochs": -1}, "epochs takes a number above 0, not -1"),
        ({"steps": 1, "epochs": 1}, "steps or epochs, not both"),
        ({"transport": "pigeon"}, "the transport is one of processes, simulated, not 'pigeon'"),
        ({"budget": "large"}, "the budget is one of small, plateau, full, not 'large'"),
        ({"modeled": True}, "needs a link to model"),
        ({"modeled": "yes"}, "modeled is true or false, not 'yes'"),
        ({"link": 100}, "link takes a text, not 100"),
        ({"batch": 8, "batch_per_rank": 2}, "a batch over all ranks or one per rank, not both (8 and 2)"),
        ({"accumulate": 0}, "accumulate takes an integer above 0, not 0"),
        ({"accumulate": 2, "capture": 1}, "accumulated gradients arrive in parts"),
        ({"alone": True, "method": "topk"}, "a rank that trains alone exchanges nothing: it takes dense"),
        ({"lr_scale": 0}, "lr_scale takes a number above 0, not 0"),
        ({"warmup": 1}, "warmup is a fraction of the steps, from 0 to below 1, not 1"),
        ({"straggler": "slow"}, "'slow' is not a straggler: write RANK:FACTOR, such as 1:3"),
        ({"straggler": "4:3"}, "the straggler must be one of the ranks 0 to 3, not 4"),
        ({"straggler": "1:0.5"}, "a straggler must be at least 1 times slower, not 0.5 times"),
        ({"straggler": "1:-3"}, "'1:-3' is not a straggler"),
        ({"straggler": 3}, "straggler takes a text, not 3"),
        ({"seed": -1}, "a seed is a number from 0 to 32767, not -1"),
        ({"rank": 4}, "no setting 'rank' (did you mean 'ranks'?)"),
    ],
)
def test_an_invalid_setting_is_an_error(settings, message):
    with pytest.raises(PlanError) as raised:
        plan_of({"workload": "digits-cnn", "method": "dense"} | settings)
    assert message in str(raised.value)


@pytest.mark.parametrize("missing", ["workload", "method"])
def test_a_missing_workload_or_method_is_an_error(missing):
    settings = {"workload": "digits-cnn", "method": "dense"}
    del settings[missing]
    with pytest.raises(PlanError, match=f"needs a {missing}: --{missing}"):
        plan_of(settings)


def test_the_time_of_simulated_ranks_on_a_link_is_modeled():
    settings = {"workload": "digits-cnn", "method": "dense", "transport": "simulated", "link": "1gbit"}
    assert plan_of(settings).modeled


def test_an_unreadable_run_file_is_an_error_that_names_it(tmp_path):
    with pytest.raises(PlanError, match=r"nowhere\.toml cannot be read"):
        read_file(tmp_path / "nowhere.toml")
    (tmp_path / "odd.toml").write_text("ranks = = 4")
    with pytest.raises(PlanError, match=r"odd\.toml is not TOML"):
        read_file(tmp_path / "odd.toml")
