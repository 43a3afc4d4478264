import json

import pytest

from thinwire.lab.recording.runs import MOST_BYTES, Run

FIELDS = {
    "factored",
    "groups",
    "server",
    "learned",
    "schema",
    "version",
    "commit",
    "workload",
    "method",
    "ranks",
    "transport",
    "link",
    "seed",
    "steps",
    "metrics",
    "bytes",
    "ratio",
    "seconds",
    "history",
    # What the report needs in addition.
    *("evaluations", "label", "metric", "better", "modeled", "kinds", "parameters", "batch", "budget", "shards"),
    *("layers", "links", "threads", "machine", "source", "command", "warnings"),
    "straggler",
    *("variant", "best_step", "examples", "plan", "tags", "took", "resumed"),
}


def example(**changes) -> Run:
    settings = {
        "workload": "digits-cnn",
        "method": "Average()",
        "ranks": 4,
        "transport": "processes",
        "seed": 1,
        "steps": 2,
        "metrics": {"test_accuracy": 0.5, "test_loss": 1.5},
        "bytes": {"dense": 2000, "payload": 1000, "link": 1500},
        "ratio": 2.0,
        "seconds": {"total": 1.0, "compute": 0.5, "encode": 0.1, "exchange": 0.2, "decode": 0.1},
        "history": [
            {"step": 1, "loss": 2.0, "payload_bytes": 500, "seconds": 0.5},
            {"step": 2, "loss": 1.0, "payload_bytes": 1000, "seconds": 1.0},
        ],
    }
    return Run(**(settings | changes))


def test_a_saved_run_has_the_documented_fields_and_loads_again(tmp_path):
    run = example()
    path = run.save(tmp_path / "new" / "folder")
    assert path.name == "run.json"
    assert set(json.loads(path.read_text())) == FIELDS
    assert Run.load(path) == run


@pytest.mark.parametrize("text", ["", "[]", "{", '{"schema": 99}', '{"schema": 1, "color": "red"}'])
def test_an_invalid_run_file_is_an_error_that_names_it(tmp_path, text):
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"run\.json"):
        Run.load(path)


def test_a_missing_run_file_is_an_error_that_names_it(tmp_path):
    with pytest.raises(ValueError, match=r"nowhere\.json"):
        Run.load(tmp_path / "nowhere.json")


def test_an_older_run_without_links_is_read(tmp_path):
    path = example(links={"rank": 1, "sent": {"0": 7}, "received": {}}).save(tmp_path)
    stored = json.loads(path.read_text())
    del stored["links"]
    path.write_text(json.dumps(stored))
    assert Run.load(path) == example()


def test_a_long_run_is_saved_in_at_most_100_kb_with_fewer_points_and_layers(tmp_path):
    points = [
        {"step": step, "loss": float(step), "payload_bytes": step, "seconds": float(step)} for step in range(1, 4001)
    ]
    layers = [{"name": f"layer {n}", "elements": n, "payload_bytes": [n] * 50} for n in range(1, 200)]
    path = example(history=points, layers=layers, steps=4000).save(tmp_path)
    assert path.stat().st_size <= MOST_BYTES
    kept = Run.load(path)
    assert kept.history[-1]["step"] == 4000
    assert 50 <= len(kept.history) < 4000
    intervals = zip([0, *(point["step"] for point in kept.history)], kept.history, strict=False)
    for start, point in intervals:  # a loss is the mean over its interval
        assert point["loss"] == pytest.approx((start + 1 + point["step"]) / 2)
    assert [layer["elements"] for layer in kept.layers] == list(range(200 - len(kept.layers), 200)), "the largest stay"
    assert kept.layers
