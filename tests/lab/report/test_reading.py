import json

import pytest

from tests.lab.report.sample_runs import a_layer, a_run
from thinwire.lab.report import read


def test_runs_are_found_at_any_depth_below_the_folder(tmp_path):
    a_run(seed=1).save(tmp_path)
    a_run(seed=2).save(tmp_path / "fp16")
    a_run(seed=3).save(tmp_path / "topk" / "seed-3")
    (tmp_path / "topk" / "log.txt").write_text("not a run")
    assert sorted(run.seed for run in read(tmp_path)) == [1, 2, 3]


def test_runs_of_a_queue_are_found_by_their_suffix(tmp_path):
    a_run(seed=1).write(tmp_path / "topk" / "seed-1.run.json")
    a_run(seed=2).write(tmp_path / "topk" / "lr-0.3" / "seed-2.run.json")
    a_run(seed=3).save(tmp_path / "dense" / "seed-3")
    a_run(seed=4).write(tmp_path / "topk" / "overrun.json")
    assert sorted(run.seed for run in read(tmp_path)) == [1, 2, 3]


def test_runs_in_hidden_folders_are_skipped(tmp_path):
    a_run(seed=1).write(tmp_path / "seed-1.run.json")
    a_run(seed=2).save(tmp_path / ".queue" / "topk" / "seed-2")
    a_run(seed=3).write(tmp_path / "topk" / ".work" / "seed-3.run.json")
    assert [run.seed for run in read(tmp_path)] == [1]
    assert [run.seed for run in read(tmp_path / ".queue")] == [2], "a given folder is read even if hidden"


def test_a_folder_without_runs_is_an_error(tmp_path):
    a_run().save(tmp_path / "empty" / ".queue")
    with pytest.raises(ValueError, match=r"no runs in .*empty: a run is a file named run\.json or NAME\.run\.json"):
        read(tmp_path / "empty")


@pytest.mark.parametrize(
    "damage",
    [
        lambda run: "{",
        lambda run: json.dumps(run | {"schema": 2}),
        lambda run: json.dumps(run | {"steps": 0}),
        lambda run: json.dumps(run | {"metrics": {}}),
        lambda run: json.dumps(run | {"bytes": {"payload": 1}}),
        lambda run: json.dumps(run | {"seconds": None}),
        lambda run: json.dumps(run | {"layers": [{"name": "a"}]}),
        lambda run: json.dumps(run | {"layers": [a_layer("a") | {"gradient": [1.0]}]}),
    ],
    ids=["cut off", "schema", "no steps", "no metric", "no bytes", "no seconds", "half a layer", "short layer"],
)
def test_an_unreadable_run_is_an_error_that_names_its_path(tmp_path, damage):
    a_run(seed=1).save(tmp_path / "complete")
    path = a_run(seed=2).save(tmp_path / "broken")
    path.write_text(damage(json.loads(path.read_text())))
    with pytest.raises(ValueError, match=r"broken.run\.json"):
        read(tmp_path)
