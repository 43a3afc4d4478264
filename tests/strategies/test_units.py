"""Units are cached for a model and a reducer, and computed again if anything that they depend on changes."""

import pytest
import torch

from thinwire import DGC, Choose, Identity, LeaderTopK, Sign, TopK, When
from thinwire.extend import Replica
from thinwire.strategies.units import units_of


def replica(**changed: object) -> Replica:
    base = Replica.of({"a": torch.zeros(30, 20), "b": torch.zeros(20), "c": torch.zeros(7)}, "dense", size=2)
    return described(base, c={"kind": "norm"})._replace(**changed)


def described(replica: Replica, **changed: dict[str, str]) -> Replica:
    """The replica with other descriptions of some parameters."""
    new = {name: replica.descriptions[name]._replace(**values) for name, values in changed.items()}
    return replica._replace(descriptions={**replica.descriptions, **new})


def test_units_of_the_same_model_are_cached() -> None:
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
        (Choose(When(Sign(), kinds="norm")), {"descriptions": described(replica(), b={"kind": "norm"}).descriptions}),
        (DGC(0.1, clip=1.0), {"size": 3}),
        (LeaderTopK(0.1, least=1), {"descriptions": described(replica(), a={"end": "first"}).descriptions}),
    ],
    ids=["names", "shapes", "order", "dtypes", "devices", "kinds", "ranks", "ends"],
)
def test_units_change_with_what_they_depend_on(reducer: Identity, changed: dict[str, object]) -> None:
    assert units_of(replica(), reducer, 100) != units_of(replica(**changed), reducer, 100)


def test_units_depend_on_the_reducer_and_on_fuse_below() -> None:
    found = {units_of(replica(), reducer, fused) for reducer in (Identity(), TopK(0.1)) for fused in (0, 100)}
    assert len(found) == 4
