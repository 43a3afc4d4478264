"""The named models have the published sizes and give reproducible gradients."""

from dataclasses import FrozenInstanceError
from functools import cache

import pytest
import torch
from torch import Tensor, nn

from thinwire.lab.tasks.models import MODELS, named
from thinwire.lab.tasks.models.resnet import PaddedShortcut

PARAMETERS = {
    "mlp": 1_863_690,
    "lenet": 61_706,
    "resnet20": 269_722,
    "resnet18": 11_173_962,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "vgg16": 14_728_266,
    "lstm": 28_949_319,
}

every_model = pytest.mark.parametrize("name", PARAMETERS)


@cache
def built(name: str) -> nn.Module:
    """Build each model once, as building the large ones takes most of the time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return named(name).build()


def gradients(name: str, seed: int) -> tuple[float, dict[str, Tensor]]:
    """Run one backward pass on a single example and return the loss and the gradients by parameter name."""
    module = built(name)
    module.zero_grad()
    loss = named(name).loss(module, seed, batch=1)
    torch.autograd.backward(loss)
    # Parameters without a gradient are omitted, so that callers can detect them.
    grads = {key: p.grad.clone() for key, p in module.named_parameters() if p.grad is not None}
    return loss.item(), grads


def test_every_model_is_listed_under_its_own_name() -> None:
    assert set(MODELS) == set(PARAMETERS)
    for name, model in MODELS.items():
        assert model.name == name
        assert named(name) is model
        assert model.about
        assert "\n" not in model.about


@every_model
def test_parameter_count(name: str) -> None:
    assert sum(p.numel() for p in built(name).parameters()) == PARAMETERS[name]


def test_resnet18_one_dimensional_parameters() -> None:
    assert sum(p.numel() for p in built("resnet18").parameters() if p.dim() == 1) == 9_610


@every_model
def test_every_parameter_gets_a_gradient(name: str) -> None:
    loss, grads = gradients(name, seed=1)
    assert 0 < loss < float("inf")
    shapes = {key: p.shape for key, p in built(name).named_parameters()}
    assert {key: grad.shape for key, grad in grads.items()} == shapes
    for key, grad in grads.items():
        assert grad.isfinite().all(), key
        # Batch norm cancels the biases of VGG's convolutions, so theirs may come out exactly zero.
        if not (name == "vgg16" and key.endswith("bias")):
            assert grad.count_nonzero() > 0, key


@every_model
def test_equal_seeds_give_equal_gradients(name: str) -> None:
    loss, grads = gradients(name, seed=7)
    again_loss, again = gradients(name, seed=7)
    assert loss == again_loss
    for key, grad in grads.items():
        torch.testing.assert_close(again[key], grad, rtol=0, atol=0, msg=key)


@pytest.mark.parametrize("name", ["mlp", "resnet20", "lstm"])
def test_another_seed_gives_other_gradients(name: str) -> None:
    loss, grads = gradients(name, seed=7)
    other_loss, other = gradients(name, seed=8)
    assert loss != other_loss
    assert not any(torch.equal(grads[key], other[key]) for key in grads)


@pytest.mark.parametrize("name", ["lenet", "vgg16", "lstm"])
def test_the_global_generator_is_unchanged(name: str) -> None:
    before = torch.get_rng_state()
    with torch.no_grad():
        named(name).loss(built(name), seed=3, batch=1)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", ["mlp", "resnet20", "resnet50"])
def test_default_batch_is_used_when_none_is_given(name: str) -> None:
    model = named(name)
    seen: list[int] = []
    hook = built(name).register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    try:
        with torch.no_grad():
            default = model.loss(built(name), seed=3)
            explicit = model.loss(built(name), seed=3, batch=model.batch)
    finally:
        hook.remove()
    assert seen == [model.batch, model.batch]
    assert torch.equal(default, explicit)


def test_lstm_embedding_starts_uniform_and_is_tied_to_the_decoder() -> None:
    parameters = dict(built("lstm").named_parameters())
    embedding = parameters["embedding.weight"].detach()
    assert embedding.abs().max() <= 0.1
    assert embedding.std().item() == pytest.approx(0.2 / 12**0.5, rel=0.01)
    _, grads = gradients("lstm", seed=1)
    # An embedding alone gets gradients for the words it read; as a decoder it gets one for every word.
    assert (grads["embedding.weight"] != 0).any(dim=1).all()


def test_lstm_labels_are_the_next_words() -> None:
    inputs, labels = named("lstm").sample(torch.Generator().manual_seed(0), 3)
    assert inputs.shape == labels.shape == (3, 35)
    assert torch.equal(inputs[:, 1:], labels[:, :-1])


def test_padded_shortcut_skips_pixels_and_adds_zero_channels() -> None:
    x = torch.arange(1.0, 33.0).reshape(1, 2, 4, 4)
    y = PaddedShortcut(2, 4, stride=2)(x)
    assert y.shape == (1, 4, 2, 2)
    assert torch.equal(y[:, 1:3], x[:, :, ::2, ::2])
    assert y[:, [0, 3]].count_nonzero() == 0


def test_resnet20_shortcuts_have_no_parameters() -> None:
    assert not [key for key, _ in built("resnet20").named_parameters() if "shortcut" in key]
    assert [key for key, _ in built("resnet18").named_parameters() if "shortcut" in key]


def test_unknown_name_lists_the_known_ones_and_suggests_the_nearest() -> None:
    with pytest.raises(ValueError, match="unknown model") as error:
        named("ResNet-50")
    assert str(error.value) == (
        "unknown model 'ResNet-50' (did you mean 'resnet50'?); known models: "
        "mlp, lenet, resnet20, resnet18, resnet50, resnet101, vgg16, lstm"
    )


def test_unknown_name_far_from_all_gets_no_suggestion() -> None:
    with pytest.raises(ValueError, match=r"^unknown model 'qqq'; known models: mlp, lenet"):
        named("qqq")


def test_a_model_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        named("mlp").batch = 1  # type: ignore[misc]
