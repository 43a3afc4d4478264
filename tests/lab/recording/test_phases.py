from thinwire import LowRankLayer
from thinwire.lab.recording.phases import Phases, grouped


def layers(*ranks):
    return {"a": LowRankLayer("conv", 64, 288, ranks[0]), "b": LowRankLayer("dense", 10, 8, ranks[1])}


def test_changes_are_noted_and_nothing_else():
    phases = Phases()
    for step, ranks in enumerate([(None, None), (None, None), (16, 8), (16, 8), (None, None), (8, 8), (None, None)], 1):
        phases.note(step, layers(*ranks))
    told = phases.told(parameters=20_000)
    assert [(at["step"], at["ranks"]) for at in told["changes"]] == [
        (1, {"a": None, "b": None}),
        (3, {"a": 16, "b": 8}),
        (5, {"a": None, "b": None}),
        (6, {"a": 8, "b": 8}),
        (7, {"a": None, "b": None}),
    ]
    assert told["layers"][0] == {"name": "a", "kind": "conv", "rows": 64, "columns": 288}
    # By the factors that were last: where they are larger than the layer, it stays as it is.
    assert told["parameters"] == 20_000 - (64 * 288 - 8 * (64 + 288))


def test_of_a_model_that_is_never_factored_nothing_is_told():
    phases = Phases()
    phases.note(1, {})
    assert phases.told(100) == {}


def test_bytes_are_within_groups_or_between_them():
    sent = [{1: 10, 2: 3}, {0: 10, 3: 4}, {3: 20}, {2: 20, 0: 1}]
    assert grouped([(0, 1), (2, 3)], sent) == {"groups": [[0, 1], [2, 3]], "within": 60, "between": 8}
    assert grouped((), sent) == {}
