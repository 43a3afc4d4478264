import pytest
import torch

from thinwire import inspect
from thinwire.lab.recording.layer_history import Layers


def layer(names, kind, payload, residual=None):
    return inspect.Layer(names, kind, 100, dense_bytes=4000, payload_bytes=payload, residual=residual)


def recorded():
    layers = Layers()
    a, b = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(3))
    for step in (1, 2):
        a.grad, b.grad = torch.tensor([3.0, 0.0]) * step, torch.tensor([0.0, 4.0, 0.0]) * step
        layers.measure({"a": a, "b": b, "unused": torch.nn.Parameter(torch.zeros(1))})
        a.grad.zero_()  # as clipping or the next step would
        layers.add(
            {"a": layer(("a",), "conv", 100 * step, 0.5), "a,b,unused": layer(("a", "b", "unused"), "small ones", 400)}
        )
    return layers


def test_each_layer_has_a_value_for_every_evaluation():
    one, several = recorded().as_list()
    assert one == {
        "name": "a",
        "kind": "conv",
        "elements": 100,
        "dense_bytes": [4000, 4000],
        "payload_bytes": [100, 200],
        "residual": [0.5, 0.5],
        "gradient": [3.0, 6.0],
    }
    assert several["residual"] == [None, None]
    assert several["gradient"] == [5.0, 10.0], "the norm over all parameters of the message"


def test_kinds_have_the_bytes_of_the_whole_run_per_step():
    kinds = recorded().kinds({"a": 300, "a,b,unused": 500, "": 7}, steps=10)
    assert kinds == {
        "conv": {"tensors": 1, "elements": 100, "dense": 400.0, "payload": 30.0},
        "small ones": {"tensors": 3, "elements": 100, "dense": 400.0, "payload": 50.0},
    }


def test_norms_of_large_gradients_are_computed_in_float64():
    layers, p = Layers(), torch.nn.Parameter(torch.zeros(1 << 25))
    p.grad = torch.full_like(p, 0.1)
    layers.measure({"p": p})
    layers.add({"p": layer(("p",), "dense", 1)})
    assert layers.as_list()[0]["gradient"] == [pytest.approx(0.1 * 2**12.5, rel=1e-6)]
