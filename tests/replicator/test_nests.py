from collections import Counter, OrderedDict, defaultdict, namedtuple

import pytest
import torch

from thinwire.replicator import nests

Pair = namedtuple("Pair", "left right")
NEST = {"b": [torch.ones(2), 3], "a": (None, Pair(torch.zeros(1, 2), True)), 7: 0.5}


def test_the_order_of_leaves_does_not_depend_on_insertion_order():
    other = {7: 0.5, "a": NEST["a"], "b": NEST["b"]}
    assert [x.tolist() for x in nests.leaves(NEST)] == [x.tolist() for x in nests.leaves(other)]
    assert nests.description(NEST) == nests.description(other)


def test_the_description_shows_structure_dtypes_and_shapes():
    assert nests.description(NEST) == "{7: float, 'a': (None, (float32[1, 2], bool)), 'b': [float32[2], int]}"


def test_rebuilt_keeps_container_types():
    rebuilt = nests.rebuilt(NEST, iter(nests.leaves(NEST)))
    assert list(rebuilt) == ["b", "a", 7]
    assert isinstance(rebuilt["a"][1], Pair)
    assert rebuilt["a"][0] is None
    for kind in (OrderedDict(x=torch.ones(1)), defaultdict(list, x=torch.ones(1))):
        assert nests.mapped(lambda x: x * 2, kind) == {"x": torch.tensor([2.0])}
    assert nests.like_numbers(Counter(a=2), nests.mapped(lambda x: x, Counter(a=2))) == {"a": 2}


def test_like_numbers_returns_python_numbers():
    converted = nests.like_numbers(NEST, nests.mapped(lambda x: x, NEST))
    assert (converted[7], converted["b"][1], converted["a"][1].right) == (0.5, 3, True)
    assert type(converted["b"][1]) is int


def test_a_leaf_of_another_type_is_an_error():
    with pytest.raises(TypeError, match="in dicts, lists and tuples, not str: 'text'"):
        nests.leaves({"a": "text"})


def test_detached_detaches_nested_tensors_and_keeps_other_objects():
    x = torch.ones(1, requires_grad=True)
    detached = nests.detached({"loss": x * 2, "phase": "warm", "more": [Pair(x * 3, None)]})
    assert not detached["loss"].requires_grad
    assert not detached["more"][0].left.requires_grad
    assert detached["phase"] == "warm"
    other = object()
    assert nests.detached(other) is other
    assert nests.detached("text") == "text"
