from thinwire import LowRankLayer
from thinwire.lab.recording.phases import Phases, grouped


def layers(*ranks):
    return {"a": LowRankLayer("conv", 64, 288, ranks[0]), "b": LowRankLayer("dense", 10, 8, ranks[1])}


def test_only_changes_are_recorded():
    phases = Phases()
    for step, ranks in enumerate([(None, None), (None, None), (16, 8), (16, 8), (None, None), (8, 8), (None, None)], 1):
        phases.add(step, layers(*ranks))
    result = phases.as_dict(parameters=20_000)
    assert [(at["step"], at["ranks"]) for at in result["changes"]] == [
        (1, {"a": None, "b": None}),
        (3, {"a": 16, "b": 8}),
        (5, {"a": None, "b": None}),
        (6, {"a": 8, "b": 8}),
        (7, {"a": None, "b": None}),
    ]
    assert result["layers"][0] == {"name": "a", "kind": "conv", "rows": 64, "columns": 288}
    # By the last factors; a layer that is smaller than its factors stays full-rank.
    assert result["parameters"] == 20_000 - (64 * 288 - 8 * (64 + 288))


def test_a_model_without_low_rank_layers_records_nothing():
    phases = Phases()
    phases.add(1, {})
    assert phases.as_dict(100) == {}


def test_bytes_are_counted_within_and_between_groups():
    sent = [{1: 10, 2: 3}, {0: 10, 3: 4}, {3: 20}, {2: 20, 0: 1}]
    assert grouped([(0, 1), (2, 3)], sent) == {"groups": [[0, 1], [2, 3]], "within": 60, "between": 8}
    assert grouped((), sent) == {}
