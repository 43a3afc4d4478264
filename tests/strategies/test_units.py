"""Units are found once for a model and a reducer, and anew for everything that they depend on."""

import pytest
import torch

from thinwire import DGC, Choose, Identity, LeaderTopK, Sign, TopK, When
from thinwire.extend import Replica
from thinwire.strategies.units import units_of


def replica(**changed: object) -> Replica:
    parameters = {"a": torch.zeros(30, 20), "b": torch.zeros(20), "c": torch.zeros(7)}
    return Replica(parameters, {"a": "dense", "b": "dense", "c": "norm"}, 0, 2)._replace(**changed)


def test_the_same_model_is_looked_at_once() -> None:
    assert units_of(replica(), TopK(0.1), 100) is units_of(replica(), TopK(0.1), 100)


@pytest.mark.parametrize(
    ("reducer", "changed"),
    [
        (Identity(), {"parameters": {"a": torch.zeros(30, 20), "c": torch.zeros(7)}}),
        (Identity(), {"parameters": {"a": torch.zeros(30, 20), "b": torch.zeros(200), "c": torch.zeros(7)}}),
        (Identity(), {"parameters": {"a": torch.zeros(30, 20), "c": torch.zeros(7), "b": torch.zeros(20)}}),
        (Identity(), {"parameters": {"a": torch.zeros(30, 20), "b": torch.zeros(20).half(), "c": torch.zeros(7)}}),
        (
            Identity(),
            {"parameters": {"a": torch.zeros(30, 20), "b": torch.zeros(20, device="meta"), "c": torch.zeros(7)}},
        ),
        (Choose(When(Sign(), kinds="norm")), {"kinds": {"a": "dense", "b": "norm", "c": "norm"}}),
        (DGC(0.1, clip=1.0), {"size": 3}),
        (LeaderTopK(0.1, least=1), {"ends": {"a": "first"}}),
    ],
    ids=["names", "shapes", "order", "types", "devices", "kinds", "ranks", "ends"],
)
def test_what_they_depend_on_is_looked_at(reducer: Identity, changed: dict[str, object]) -> None:
    assert units_of(replica(), reducer, 100) != units_of(replica(**changed), reducer, 100)


def test_they_depend_on_the_method() -> None:
    found = {units_of(replica(), reducer, fused) for reducer in (Identity(), TopK(0.1)) for fused in (0, 100)}
    assert len(found) == 4
