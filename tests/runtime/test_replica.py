import pytest
import torch
from torch import nn

from thinwire.runtime.replica import parameters_of
from thinwire.simulate import replica_of


class Model(nn.Module):
    """Parts by name, as an attribute each."""

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


def test_a_parameter_of_no_layer_is_of_another_kind() -> None:
    assert replica_of(Model(scale=nn.Parameter(torch.ones(3)))).kinds == {"scale": "other"}


def test_the_parameters_are_the_models_own_in_its_order() -> None:
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


def test_what_is_frozen_is_left_out() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    model[0].requires_grad_(False)
    assert list(replica_of(model).parameters) == ["1.weight", "1.bias"]


def test_only_the_parameters_that_are_asked_for_are_taken() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    assert list(replica_of(model, only=[model[1].bias]).parameters) == ["1.bias"]


def test_the_parameters_that_are_asked_for_may_be_a_generator() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    assert len(replica_of(model, only=model.parameters()).parameters) == 4


@pytest.mark.parametrize("model", [nn.ReLU(), nn.Linear(2, 3).requires_grad_(False)], ids=["none", "all frozen"])
def test_a_model_without_anything_to_train_is_refused(model: nn.Module) -> None:
    with pytest.raises(ValueError, match="the model has no trainable parameters"):
        replica_of(model)


@pytest.mark.parametrize("layer", [nn.Embedding, nn.EmbeddingBag])
def test_sparse_gradients_are_refused_by_name(layer: type[nn.Embedding]) -> None:
    with pytest.raises(ValueError, match=r"^words\.weight has sparse gradients.*sparse=False"):
        replica_of(Model(words=layer(5, 3, sparse=True)))


def test_a_frozen_sparse_embedding_is_no_hindrance() -> None:
    model = Model(words=nn.Embedding(5, 3, sparse=True).requires_grad_(False), out=nn.Linear(3, 2))
    assert list(replica_of(model).parameters) == ["out.weight", "out.bias"]


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_what_is_not_real_is_refused_by_name(dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match=rf"^phase is {dtype}"):
        replica_of(Model(phase=nn.Parameter(torch.ones(3, dtype=dtype))))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_real_numbers_of_any_precision_are_taken(dtype: torch.dtype) -> None:
    assert replica_of(nn.Linear(2, 3, dtype=dtype)).parameters["weight"].dtype == dtype


def test_names_do_not_tell_whether_a_model_was_compiled() -> None:
    # torch.compile wraps a module in one that holds it as _orig_mod.
    layers = nn.Sequential(nn.Linear(2, 3), nn.MultiheadAttention(4, 2))
    plain = replica_of(Model(body=layers))
    assert dict(replica_of(Model(_orig_mod=Model(body=layers))).kinds) == plain.kinds
    assert dict(replica_of(Model(body=Model(_orig_mod=layers))).kinds) == plain.kinds
    assert list(plain.kinds) == [
        "body.0.weight",
        "body.0.bias",
        *(f"body.1.{n}" for n, _ in layers[1].named_parameters()),
    ]


def test_a_reducer_is_told_outlines_only() -> None:
    replica = replica_of(nn.Conv2d(2, 3, 5))
    told = parameters_of(replica)
    assert [p.name for p in told] == ["weight", "bias"]
    assert [p.kind for p in told] == ["conv", "conv"]
    assert all(p.like.is_meta for p in told)
    assert [tuple(p.like.shape) for p in told] == [(3, 2, 5, 5), (3,)]
