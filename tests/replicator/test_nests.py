from collections import Counter, OrderedDict, defaultdict, namedtuple

import pytest
import torch

from thinwire.replicator import nests

Pair = namedtuple("Pair", "left right")
NEST = {"b": [torch.ones(2), 3], "a": (None, Pair(torch.zeros(1, 2), True)), 7: 0.5}


def test_leaves_come_in_an_order_that_the_insertion_does_not_change():
    other = {7: 0.5, "a": NEST["a"], "b": NEST["b"]}
    assert [x.tolist() for x in nests.leaves(NEST)] == [x.tolist() for x in nests.leaves(other)]
    assert nests.told(NEST) == nests.told(other)


def test_the_structure_is_told_with_types_and_shapes():
    assert nests.told(NEST) == "{7: float, 'a': (None, (float32[1, 2], bool)), 'b': [float32[2], int]}"


def test_a_nest_is_rebuilt_with_its_own_types():
    made = nests.rebuilt(NEST, iter(nests.leaves(NEST)))
    assert list(made) == ["b", "a", 7]
    assert isinstance(made["a"][1], Pair)
    assert made["a"][0] is None
    for kind in (OrderedDict(x=torch.ones(1)), defaultdict(list, x=torch.ones(1))):
        assert nests.mapped(lambda x: x * 2, kind) == {"x": torch.tensor([2.0])}
    assert nests.like_numbers(Counter(a=2), nests.mapped(lambda x: x, Counter(a=2))) == {"a": 2}


def test_numbers_stay_numbers():
    made = nests.like_numbers(NEST, nests.mapped(lambda x: x, NEST))
    assert (made[7], made["b"][1], made["a"][1].right) == (0.5, 3, True)
    assert type(made["b"][1]) is int


def test_what_is_not_a_nest_is_shown():
    with pytest.raises(TypeError, match="in dicts, lists and tuples, not str: 'text'"):
        nests.leaves({"a": "text"})


def test_what_a_step_returns_lets_go_of_what_it_was_computed_from():
    x = torch.ones(1, requires_grad=True)
    made = nests.detached({"loss": x * 2, "phase": "warm", "more": [Pair(x * 3, None)]})
    assert not made["loss"].requires_grad
    assert not made["more"][0].left.requires_grad
    assert made["phase"] == "warm"
    told = object()
    assert nests.detached(told) is told
    assert nests.detached("text") == "text"
