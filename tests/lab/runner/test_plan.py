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


def test_a_plan_comes_back_from_its_run_file(tmp_path):
    for plan in (PLAN, *OTHERS):
        file = tmp_path / "run.toml"
        file.write_text(plan.to_toml())
        assert plan_of(read_file(file)) == plan


def test_a_plan_comes_back_from_its_command():
    import shlex

    for plan in (PLAN, *OTHERS):
        program, *arguments = shlex.split(plan.command())
        assert program == "thinwire"
        asked = request_of(parser().parse_args(arguments))
        assert plan_of(asked.said) == plan
        assert asked.out == Path("runs/again")


def test_every_flag_has_a_place_in_the_run_file():
    assert set(tomllib.loads(PLAN.to_toml())) | {"epochs", "batch_per_rank"} == set(Plan.__dataclass_fields__)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"ranks": 0}, "ranks takes a whole number above 0, not 0"),
        ({"ranks": "4"}, "not '4'"),
        ({"ranks": True}, "not True"),
        ({"steps": 2.5}, "steps takes a whole number above 0, not 2.5"),
        ({"capture": 0}, "capture takes a whole number above 0, not 0"),
        ({"epochs": -1}, "epochs takes a number above 0, not -1"),
        ({"steps": 1, "epochs": 1}, "steps or epochs, not both"),
        ({"transport": "pigeon"}, "the transport is one of processes, simulated, not 'pigeon'"),
        ({"budget": "large"}, "the budget is one of small, plateau, full, not 'large'"),
        ({"modeled": True}, "needs a link to model"),
        ({"modeled": "yes"}, "modeled is true or false, not 'yes'"),
        ({"link": 100}, "link takes a text, not 100"),
        ({"batch": 8, "batch_per_rank": 2}, "a batch over all ranks or one per rank, not both (8 and 2)"),
        ({"accumulate": 0}, "accumulate takes a whole number above 0, not 0"),
        ({"accumulate": 2, "capture": 1}, "gradients that are accumulated come in pieces"),
        ({"alone": True, "method": "topk"}, "a rank that trains alone exchanges nothing: it takes dense"),
        ({"lr_scale": 0}, "lr_scale takes a number above 0, not 0"),
        ({"warmup": 1}, "warmup is a share of the steps, from 0 to below 1, not 1"),
        ({"straggler": "slow"}, "'slow' is no straggler: write RANK:FACTOR, such as 1:3"),
        ({"straggler": "4:3"}, "the straggler is one of the ranks 0 to 3, not 4"),
        ({"straggler": "1:0.5"}, "a straggler is 1 times slower or more, not 0.5 times"),
        ({"straggler": "1:-3"}, "'1:-3' is no straggler"),
        ({"straggler": 3}, "straggler takes a text, not 3"),
        ({"seed": -1}, "a seed is a number from 0 to 32767, not -1"),
        ({"rank": 4}, "no setting 'rank' (did you mean 'ranks'?)"),
    ],
)
def test_a_mistake_is_shown(said, message):
    with pytest.raises(PlanError) as raised:
        plan_of({"workload": "digits-cnn", "method": "dense"} | said)
    assert message in str(raised.value)


@pytest.mark.parametrize("missing", ["workload", "method"])
def test_what_a_run_cannot_do_without_is_asked_for(missing):
    said = {"workload": "digits-cnn", "method": "dense"}
    del said[missing]
    with pytest.raises(PlanError, match=f"needs a {missing}: --{missing}"):
        plan_of(said)


def test_simulated_ranks_have_no_wires_so_their_time_on_a_link_is_modelled():
    said = {"workload": "digits-cnn", "method": "dense", "transport": "simulated", "link": "1gbit"}
    assert plan_of(said).modeled


def test_a_run_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(PlanError, match=r"nowhere\.toml cannot be read"):
        read_file(tmp_path / "nowhere.toml")
    (tmp_path / "odd.toml").write_text("ranks = = 4")
    with pytest.raises(PlanError, match=r"odd\.toml is not TOML"):
        read_file(tmp_path / "odd.toml")
