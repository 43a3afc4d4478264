"""The table of the contract tests contains every public class."""

from inspect import isabstract

import pytest

import thinwire
from thinwire import codecs, reducers, strategies, topologies
from thinwire.extend import Codec, Reducer, Strategy, Topology
from thinwire.inspect import parts_of

from .table import CODECS, REDUCERS, STRATEGIES, TOPOLOGIES

KINDS = [(Codec, CODECS), (Reducer, REDUCERS), (Strategy, STRATEGIES), (Topology, TOPOLOGIES)]
PACKAGES = [(Codec, codecs), (Reducer, reducers), (Strategy, strategies), (Topology, topologies)]


def public(kind: type) -> set[type]:
    """The public concrete classes of a kind."""
    values = [getattr(thinwire, name) for name in thinwire.__all__]
    return {value for value in values if isinstance(value, type) and issubclass(value, kind) and not isabstract(value)}


@pytest.mark.parametrize(("kind", "table"), KINDS, ids=lambda value: getattr(value, "__name__", ""))
def test_every_public_class_is_in_the_table(kind: type, table: tuple[object, ...]) -> None:
    assert public(kind), f"no public {kind.__name__} was found: this test is wrong"
    missing = public(kind) - {type(part) for instance in table for part in parts_of(instance)}
    assert not missing, f"add instances to tests/contracts/table.py: {sorted(cls.__name__ for cls in missing)}"


@pytest.mark.parametrize(("kind", "package"), PACKAGES)
def test_every_class_of_a_package_is_public(kind: type, package: object) -> None:
    exported = {getattr(package, name) for name in package.__all__}  # type: ignore[attr-defined]
    concrete = (value for value in exported if isinstance(value, type) and not isabstract(value))
    classes = {value for value in concrete if issubclass(value, kind)}
    assert classes
    assert {value for value in classes if not isabstract(value)} <= public(kind)


def test_the_tables_have_no_duplicates() -> None:
    for _, table in KINDS:
        assert len({repr(instance) for instance in table}) == len(table)
