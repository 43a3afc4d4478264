"""Factored layers: the same outputs and gradients as the original layer, optimizer states, and files."""

import io
from collections.abc import Callable
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear
from torch.optim import SGD, Adam, AdamW, Optimizer

from thinwire import load_low_rank
from thinwire.strategies.ab_training import (
    FACTORED,
    Factored,
    FactoredModel,
    decomposed,
    export,
    merged,
    smaller,
    thin,
)

from ...helpers import random, same_bits

LAYERS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "linear": (lambda: nn.Linear(12, 9), lambda: random(7, 12)),
    "linear of sequences, no bias": (lambda: nn.Linear(12, 9, bias=False), lambda: random(3, 7, 12)),
    "conv1d": (lambda: nn.Conv1d(5, 8, 3, padding=1), lambda: random(4, 5, 11)),
    "conv2d": (lambda: nn.Conv2d(5, 8, 3, stride=2, padding=1, bias=False), lambda: random(4, 5, 9, 8)),
    "conv2d, reflecting": (lambda: nn.Conv2d(5, 8, 3, padding=2, padding_mode="reflect"), lambda: random(4, 5, 9, 8)),
    "conv2d in groups": (lambda: nn.Conv2d(6, 8, 3, groups=2), lambda: random(4, 6, 9, 8)),
    "conv2d without a batch": (lambda: nn.Conv2d(5, 8, 3, dilation=2), lambda: random(5, 9, 8)),
    "conv3d": (lambda: nn.Conv3d(3, 6, 2), lambda: random(2, 3, 4, 5, 4)),
    "embedding": (lambda: nn.Embedding(20, 8, padding_idx=3), lambda: torch.arange(18).view(2, 9) % 20),
}


class Model(nn.Module):
    """A model of one layer."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)  # type: ignore[no-any-return]


def model_and_input(kind: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    build, example = LAYERS[kind]
    return Model(build()), example()


def factorable(model: nn.Module, make: Callable[[nn.Module], Optimizer] | None = None) -> FactoredModel:
    return FactoredModel(model, (make or (lambda m: SGD(m.parameters(), lr=0.1)))(model), ends=False)


def split(factored_model: FactoredModel, cutoff: float = 0.0, train: str = "a", moments: str = "carry") -> None:
    for entry in factored_model.factorable:
        entry.split(*entry.decomposed(cutoff), moments)
        entry.train(train)


@pytest.mark.parametrize("kind", LAYERS)
def test_factoring_without_truncation_does_not_change_outputs(kind: str) -> None:
    model, x = model_and_input(kind)
    expected = model(x)
    factored_model = factorable(model)
    assert same_bits(model(x), expected), "full-rank, the output is unchanged"
    split(factored_model)
    torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model.layer.weight, factored_model.factorable[0].matrix().view_as(model.layer.weight))
    for entry in factored_model.factorable:
        entry.merge(entry.matrix())
    torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-5)
    factored_model.end()
    assert type(model.layer) is type(LAYERS[kind][0]())
    torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("rank", [1, 3])
def test_a_low_rank_layer_equals_the_layer_with_the_product_as_weight(kind: str, rank: int) -> None:
    """In outputs and gradients, for each way of computing them."""
    model, x = model_and_input(kind)
    factored_model = factorable(model)
    (entry,) = factored_model.factorable
    a, b = entry.decomposed(0.0)
    entry.split(a[:, :rank], b[:rank], "carry")
    entry.train("a", "b")
    full = merged(model)
    assert type(full.layer) is type(LAYERS[kind][0]())
    torch.testing.assert_close(model(x), full(x), rtol=1e-4, atol=1e-5)
    out = random(*model(x).shape, seed=5)
    model(x).backward(out)
    full(x).backward(out)
    gradient = full.layer.weight.grad.flatten(1)  # type: ignore[union-attr,operator]
    torch.testing.assert_close(entry.a.grad, gradient @ b[:rank].T, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(entry.b.grad, a[:, :rank].T @ gradient, rtol=1e-3, atol=1e-4)


def test_a_low_rank_layer_has_the_flops_of_two_low_rank_products() -> None:
    """The product of the factors is not computed, unless that is cheaper."""
    from torch.utils.flop_counter import FlopCounterMode

    model = Model(nn.Linear(256, 256, bias=False))
    x = random(512, 256)
    factored_model = factorable(model)
    with FlopCounterMode(display=False) as full:
        model(x)
    (entry,) = factored_model.factorable
    a, b = entry.decomposed(0.0)
    entry.split(a[:, :8], b[:8], "carry")
    with FlopCounterMode(display=False) as low_rank:
        model(x)
    assert low_rank.get_total_flops() == full.get_total_flops() * 2 * 8 / 256
    with FlopCounterMode(display=False) as one:
        model(x[:1])
    assert one.get_total_flops() == 2 * 8 * (256 + 256)
    entry.merge(entry.matrix())
    entry.split(a[:, :200], b[:200], "carry")  # two products would cost more, so the weight is computed
    with FlopCounterMode(display=False) as high_rank:
        model(x)
    assert high_rank.get_total_flops() == 2 * (256 * 200 * 256 + 512 * 256 * 256)


def test_all_projections_of_attention_are_factored() -> None:
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    x = random(3, 5, 16)
    expected = model(x)
    factored_model = factorable(model)
    assert [entry.name for entry in factored_model.factorable] == [
        "self_attn",
        "self_attn.out_proj",
        "linear1",
        "linear2",
    ]
    split(factored_model)
    torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-5)
    model(x).sum().backward()
    assert all(entry.a.grad is not None and entry.a.grad.abs().sum() > 0 for entry in factored_model.factorable)
    assert all(entry.b.grad is None for entry in factored_model.factorable)
    model.eval()
    with torch.no_grad():
        torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-5)
    assert type(merged(model).self_attn.out_proj) is NonDynamicallyQuantizableLinear


@pytest.mark.parametrize("cutoff", [0.0, 0.1, 0.5, 0.9])
def test_truncation_keeps_singular_values_above_the_cutoff(cutoff: float) -> None:
    values = torch.tensor([8.0, 4.0, 1.0, 0.8, 0.5, 0.1])
    u, v = (torch.linalg.qr(random(n, 6, seed=n))[0] for n in (9, 7))
    a, b = decomposed((u * values) @ v.T, cutoff)
    kept = int((values > cutoff * 8).sum())
    assert a.shape == (9, kept)
    assert b.shape == (kept, 7)
    torch.testing.assert_close(a @ b, (u[:, :kept] * values[:kept]) @ v[:, :kept].T, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        a.square().sum(0), values[:kept], rtol=1e-4, atol=1e-5
    )  # each factor has the root of the singular values
    torch.testing.assert_close(b.square().sum(1), values[:kept], rtol=1e-4, atol=1e-5)


def test_a_zero_matrix_keeps_one_trainable_direction() -> None:
    a, b = decomposed(torch.zeros(4, 3), 0.5)
    assert a.shape == (4, 1)
    assert not (a @ b).any()
    assert b.any(), "two zero factors would have no gradients"


# --- the optimizer's state


@pytest.mark.parametrize("make", [lambda m: SGD(m.parameters(), lr=0.1, momentum=0.9), lambda m: Adam(m.parameters())])
@pytest.mark.parametrize("which", ["a", "b"])
def test_first_moments_are_projected_onto_factors_exactly(make: Callable[[nn.Module], Optimizer], which: str) -> None:
    """A momentum of G becomes G B' for A, and A' G for B."""
    model, _ = model_and_input("linear")
    factored_model = factorable(model, make)
    for seed in range(3):
        factored_model.optimizer.zero_grad()
        model(random(7, 12, seed=seed)).square().sum().backward()
        factored_model.optimizer.step()
    (entry,) = factored_model.factorable
    state = {name: x.clone() for name, x in factored_model.optimizer.state[entry.weight].items() if x is not None}
    split(factored_model, 0.2, which)
    found = factored_model.optimizer.state[getattr(entry, which)]
    assert found.keys() >= state.keys()
    name = "momentum_buffer" if "momentum_buffer" in state else "exp_avg"
    expected = state[name] @ entry.b.detach().T if which == "a" else entry.a.detach().T @ state[name]
    torch.testing.assert_close(found[name], expected)
    if "exp_avg_sq" in state:
        assert (found["exp_avg_sq"] >= 0).all()
        assert found["step"] == state["step"]
    # The weight's state is kept until it is merged again; the frozen factor has none.
    assert getattr(entry, "b" if which == "a" else "a") not in factored_model.optimizer.state
    entry.merge(entry.matrix())
    entry.train("weight")
    assert same_bits(factored_model.optimizer.state[entry.weight][name], state[name])
    assert entry.a not in factored_model.optimizer.state
    assert entry.b not in factored_model.optimizer.state


def test_moments_can_be_reset() -> None:
    model, x = model_and_input("linear")
    factored_model = factorable(model, lambda m: AdamW(m.parameters()))
    model(x).sum().backward()
    factored_model.optimizer.step()
    split(factored_model, moments="reset")
    (entry,) = factored_model.factorable
    assert not any(p in factored_model.optimizer.state for p in (entry.weight, entry.a, entry.b))


@pytest.mark.parametrize("kind", ["linear", "conv2d", "embedding"])
@pytest.mark.parametrize(
    "make", [lambda m: SGD(m.parameters(), lr=0.1, momentum=0.9), lambda m: AdamW(m.parameters(), foreach=True)]
)
def test_an_optimizer_works_through_factoring_and_merging(kind: str, make: Callable[[nn.Module], Optimizer]) -> None:
    model, x = model_and_input(kind)
    factored_model = factorable(model, make)
    (entry,) = factored_model.factorable

    def step() -> None:
        factored_model.optimizer.zero_grad()
        model(x).square().mean().backward()
        factored_model.optimizer.step()

    initial = model(x).square().mean().item()
    for which in ("a", "b"):
        step()
        split(factored_model, 0.3, which)
        frozen = (entry.b if which == "a" else entry.a).detach().clone()
        step()
        assert same_bits((entry.b if which == "a" else entry.a).detach(), frozen)
        entry.merge(entry.matrix())
        entry.train("weight")
    assert model(x).square().mean().item() < initial
    factored_model.end()
    assert len(factored_model.optimizer.param_groups[0]["params"]) == len(list(model.parameters()))


def test_scaled_learning_rates_are_restored() -> None:
    model, _ = model_and_input("linear")
    factored_model = factorable(model)
    factored_model.scale_lr(0.0)
    assert factored_model.optimizer.param_groups[0]["lr"] == 1e-5
    factored_model.scale_lr(0.5)
    assert factored_model.optimizer.param_groups[0]["lr"] == pytest.approx(0.05, rel=1e-3)
    factored_model.scale_lr(1.0)
    assert factored_model.optimizer.param_groups[0]["lr"] == 0.1
    factored_model.optimizer.param_groups[0]["lr"] = 1e-7
    factored_model.scale_lr(0.5)
    assert factored_model.optimizer.param_groups[0]["lr"] == 5e-8, "scaling never raises it"


# --- which layers are factored


def net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.Flatten(),
        nn.Linear(8 * 16, 16),
        nn.Linear(16, 16),
        nn.Linear(16, 4),
    )


def names(*args: object, **settings: object) -> list[str]:
    model = net()
    return [entry.name for entry in FactoredModel(model, SGD(model.parameters(), lr=0.1), *args, **settings).factorable]  # type: ignore[arg-type]


def test_the_first_the_last_and_kept_layers_stay_full_rank() -> None:
    assert names() == ["2", "4", "5"]
    assert names(ends=False) == ["0", "2", "4", "5", "6"]
    assert names(["4"]) == ["2", "5"]
    assert names(["[245]"], ends=False) == ["0", "6"]


def test_a_keep_pattern_without_a_match_warns() -> None:
    with pytest.warns(UserWarning, match=r"keep='haed\.\*' matches no layer that can be factored"):
        assert names(["haed.*"]) == ["2", "4", "5"]


def test_a_model_without_a_factorable_layer_is_an_error() -> None:
    with pytest.raises(ValueError, match="no layer whose weight can be factored: besides the first and the last, it"):
        names(["*"])
    model = nn.Sequential(nn.LSTM(4, 4))
    with pytest.raises(ValueError, match="it must be a Linear, Conv, Embedding or MultiheadAttention"):
        FactoredModel(model, SGD(model.parameters(), lr=0.1), ends=False)


def test_layers_that_cannot_be_factored_stay_full_rank() -> None:
    """Tied, frozen, not in the optimizer, with max_norm, or a subclass."""

    class Subclass(nn.Linear):
        pass

    model = nn.Sequential(
        nn.Linear(4, 4),
        nn.Linear(4, 4),
        nn.Linear(4, 4),
        Subclass(4, 4),
        nn.Embedding(4, 4, max_norm=1.0),
        nn.Linear(4, 4),
        nn.Linear(4, 1),
    )
    model[1].weight = model[0].weight
    model[2].weight.requires_grad_(False)
    factored_model = FactoredModel(model, SGD(model[:6].parameters(), lr=0.1), ends=False)
    assert [entry.name for entry in factored_model.factorable] == ["5"]


def test_every_factored_class_subclasses_its_plain_class() -> None:
    assert all(issubclass(kind, plain) and issubclass(kind, Factored) for plain, kind in FACTORED.items())


# --- files


def test_a_factored_model_is_saved_and_loaded_in_any_phase() -> None:
    model, fresh = net(), net()
    factored_model, other = (FactoredModel(m, SGD(m.parameters(), lr=0.1)) for m in (model, fresh))
    x = random(2, 3, 4, 4)
    for _ in range(2):
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        file.seek(0)
        fresh.load_state_dict(torch.load(file, weights_only=True))
        fresh.eval(), model.eval()
        assert same_bits(fresh(x), model(x))
        assert [entry.rank for entry in other.factorable] == [entry.rank for entry in factored_model.factorable]
        split(factored_model, 0.3)
    unfactored = net()
    fresh.load_state_dict(unfactored.state_dict())  # from a model without thinwire
    unfactored.eval()
    assert same_bits(fresh(x), unfactored(x))
    with pytest.raises(RuntimeError, match="size mismatch"):
        fresh.load_state_dict(model.state_dict() | {"4.factor_a": torch.zeros(3, 2)})


@pytest.mark.parametrize("kind", [kind for kind in LAYERS if "groups" not in kind])
def test_a_low_rank_model_consists_of_torch_layers(kind: str) -> None:
    model, x = model_and_input(kind)
    factored_model = factorable(model)
    (entry,) = factored_model.factorable
    a, b = entry.decomposed(0.0)
    entry.split(a[:, :2], b[:2], "carry")
    found = thin(merged(model), {"layer": 2})
    torch.testing.assert_close(found(x), model(x), rtol=1e-4, atol=1e-5)
    assert all(type(part).__module__.startswith("torch.") for part in found.layer.modules())
    assert sum(p.numel() for p in found.parameters()) < sum(p.numel() for p in merged(model).parameters())


def test_an_exported_file_loads_into_a_plain_model(tmp_path: object) -> None:
    model = net()
    path = f"{tmp_path}/low_rank.pt"
    ranks = smaller(model, {"2": 3, "4": 4, "5": 8})
    assert ranks == {"2": 3, "4": 4}, "at rank 8, two layers are not smaller than one"
    export(model, ranks, path)
    found, expected = load_low_rank(net(), path), thin(model, ranks)
    x = random(2, 3, 4, 4)
    assert same_bits(found.eval()(x), expected.eval()(x))
    with pytest.raises(ValueError, match="does not fit this model"):
        load_low_rank(nn.Linear(3, 3), path)
    torch.save({"state": 1}, path)
    with pytest.raises(ValueError, match=r"was not written by handle\.export\(\)"):
        load_low_rank(net(), path)


def test_attention_is_exported_with_full_rank_projections(tmp_path: object) -> None:
    model = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    ranks = smaller(model, {"self_attn": 2, "self_attn.out_proj": 2, "linear1": 2})
    assert ranks == {"linear1": 2}
    export(model, ranks, f"{tmp_path}/low_rank.pt")
    fresh = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    load_low_rank(fresh, f"{tmp_path}/low_rank.pt")(random(3, 5, 16))


def test_a_deep_copy_of_a_factored_model_works() -> None:
    model = net()
    split(FactoredModel(model, SGD(model.parameters(), lr=0.1)), 0.3)
    x = random(2, 3, 4, 4)
    assert same_bits(deepcopy(model).eval()(x), model.eval()(x))
