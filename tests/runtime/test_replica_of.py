import pytest
import torch
from torch import nn

from thinwire.runtime.replica_of import parameters_of
from thinwire.simulate import replica_of


class Model(nn.Module):
    """A module with these attributes."""

    def __init__(self, **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)


@pytest.mark.parametrize(
    ("layer", "kind"),
    [
        (nn.Conv1d(2, 3, 1), "conv"),
        (nn.Conv2d(2, 3, 1), "conv"),
        (nn.ConvTranspose3d(2, 3, 1), "conv"),
        (nn.Linear(2, 3), "dense"),
        (nn.Bilinear(2, 2, 3), "dense"),
        (nn.LSTM(2, 3), "recurrent"),
        (nn.GRU(2, 3), "recurrent"),
        (nn.LSTMCell(2, 3), "recurrent"),
        (nn.Embedding(5, 3), "embedding"),
        (nn.EmbeddingBag(5, 3), "embedding"),
        (nn.MultiheadAttention(4, 2), "attention"),
        (nn.BatchNorm2d(3), "norm"),
        (nn.LayerNorm(3), "norm"),
        (nn.GroupNorm(1, 3), "norm"),
        (nn.RMSNorm(3), "norm"),
        (nn.InstanceNorm1d(3, affine=True), "norm"),
        (nn.PReLU(), "other"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_parameter_has_the_kind_of_its_layer(layer: nn.Module, kind: str) -> None:
    for model, prefix in ((layer, ""), (Model(layer=layer), "layer."), (nn.Sequential(nn.Sequential(layer)), "0.0.")):
        replica = replica_of(model)
        assert set(replica.kinds.values()) == {kind}
        assert set(replica.kinds) == {prefix + name for name, _ in layer.named_parameters()}


def test_a_parameter_outside_of_layers_has_the_kind_other() -> None:
    assert replica_of(Model(scale=nn.Parameter(torch.ones(3)))).kinds == {"scale": "other"}


def test_parameters_are_those_of_the_model_in_its_order() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2))
    replica = replica_of(model, rank=1, size=4)
    assert list(replica.parameters) == [name for name, _ in model.named_parameters()]
    assert all(replica.parameters[name] is p for name, p in model.named_parameters())
    assert (replica.rank, replica.size) == (1, 4)


def test_a_tied_weight_counts_once() -> None:
    model = Model(encoder=nn.Embedding(5, 3), decoder=nn.Linear(3, 5))
    model.decoder.weight = model.encoder.weight
    replica = replica_of(model)
    assert list(replica.parameters) == ["encoder.weight", "decoder.bias"]
    assert replica.kinds["encoder.weight"] == "embedding"


def test_a_layer_that_is_used_twice_counts_once() -> None:
    layer = nn.Linear(3, 3)
    assert list(replica_of(nn.Sequential(layer, layer)).parameters) == ["0.weight", "0.bias"]


def test_frozen_parameters_are_left_out() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    model[0].requires_grad_(False)
    assert list(replica_of(model).parameters) == ["1.weight", "1.bias"]


def test_only_selects_parameters() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    assert list(replica_of(model, only=[model[1].bias]).parameters) == ["1.bias"]


def test_only_may_be_a_generator() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    assert len(replica_of(model, only=model.parameters()).parameters) == 4


@pytest.mark.parametrize("model", [nn.ReLU(), nn.Linear(2, 3).requires_grad_(False)], ids=["none", "all frozen"])
def test_a_model_without_trainable_parameters_is_an_error(model: nn.Module) -> None:
    with pytest.raises(ValueError, match="the model has no trainable parameters"):
        replica_of(model)


@pytest.mark.parametrize("layer", [nn.Embedding, nn.EmbeddingBag])
def test_sparse_gradients_are_an_error_that_names_the_parameter(layer: type[nn.Embedding]) -> None:
    with pytest.raises(ValueError, match=r"^words\.weight has sparse gradients.*sparse=False"):
        replica_of(Model(words=layer(5, 3, sparse=True)))


def test_a_frozen_sparse_embedding_is_accepted() -> None:
    model = Model(words=nn.Embedding(5, 3, sparse=True).requires_grad_(False), out=nn.Linear(3, 2))
    assert list(replica_of(model).parameters) == ["out.weight", "out.bias"]


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_a_complex_parameter_is_an_error_that_names_it(dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match=rf"^phase is {dtype}"):
        replica_of(Model(phase=nn.Parameter(torch.ones(3, dtype=dtype))))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_floating_point_parameters_of_any_precision_are_accepted(dtype: torch.dtype) -> None:
    assert replica_of(nn.Linear(2, 3, dtype=dtype)).parameters["weight"].dtype == dtype


def test_parameter_names_do_not_depend_on_torch_compile() -> None:
    # torch.compile wraps a module in one with the attribute _orig_mod.
    layers = nn.Sequential(nn.Linear(2, 3), nn.MultiheadAttention(4, 2))
    plain = replica_of(Model(body=layers))
    assert dict(replica_of(Model(_orig_mod=Model(body=layers))).kinds) == plain.kinds
    assert dict(replica_of(Model(body=Model(_orig_mod=layers))).kinds) == plain.kinds
    assert list(plain.kinds) == [
        "body.0.weight",
        "body.0.bias",
        *(f"body.1.{n}" for n, _ in layers[1].named_parameters()),
    ]


def test_reducers_get_outlines_of_parameters() -> None:
    replica = replica_of(nn.Conv2d(2, 3, 5))
    described = parameters_of(replica)
    assert [p.name for p in described] == ["weight", "bias"]
    assert [p.kind for p in described] == ["conv", "conv"]
    assert all(p.like.is_meta for p in described)
    assert [tuple(p.like.shape) for p in described] == [(3, 2, 5, 5), (3,)]
