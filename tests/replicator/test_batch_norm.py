"""GlobalBatchNorm gives what torch's batch norm gives for the concatenated batches of all replicas."""

from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from tests.attach import processes
from tests.helpers import random
from thinwire import Context, GlobalBatchNorm, Replicator, global_batch_norm
from thinwire.simulate import InProcessCluster

CHANNELS = 3
EVEN = ((5, 5), (4, 4))  # examples of each replica, by step
UNEVEN = ((1, 7), (6, 2))
ONE_EMPTY = ((0, 5), (3, 0))
LAYOUTS = {"1d": (nn.BatchNorm1d, ()), "line": (nn.BatchNorm1d, (6,)), "2d": (nn.BatchNorm2d, (2, 3))}
LAYOUTS["3d"] = nn.BatchNorm3d, (2, 1, 2)


class Trained(NamedTuple):
    """The results of training a layer; the first two lists have an entry for each step."""

    outputs: list[Tensor]
    input_gradients: list[Tensor]
    parameter_gradients: list[Tensor]
    buffers: list[Tensor]


def layer_of(kind: type[nn.Module], **settings: Any) -> nn.Module:
    layer = kind(CHANNELS, dtype=torch.float64, **settings)
    with torch.no_grad():
        for n, p in enumerate(layer.parameters()):
            p.copy_(random(CHANNELS, seed=50 + n, dtype=torch.float64))
    return layer


def batch(step: int, rank: int, examples: int, *shape: int) -> Tensor:
    """A batch; its mean differs between replicas."""
    return random(examples, CHANNELS, *shape, seed=100 * step + rank, dtype=torch.float64) + 3 * rank


def trained(layer: nn.Module, batches: list[Tensor]) -> Trained:
    """Train with a loss in which every output entry has another gradient."""
    outputs, gradients = [], []
    for x in batches:
        x = x.clone().requires_grad_()
        y = layer(x)
        weights = x.detach().cos()
        (weights * y + y**3).sum().backward()
        outputs.append(y.detach())
        gradients.append(x.grad)
    return Trained(outputs, gradients, [p.grad for p in layer.parameters()], list(layer.buffers()))


def on_a_replica(
    sizes: tuple[tuple[int, ...], ...], layout: str = "2d", settings: dict[str, Any] | None = None
) -> Trained:
    """Train on one of the replicas; a module-level function, for processes."""
    context = Replicator().context
    kind, shape = LAYOUTS[layout]
    layer = global_batch_norm(layer_of(kind, **settings or {}), context)
    return trained(layer, [batch(step, context.rank, n[context.rank], *shape) for step, n in enumerate(sizes)])


def on_concatenated(
    sizes: tuple[tuple[int, ...], ...], layout: str = "2d", settings: dict[str, Any] | None = None
) -> Trained:
    """Train torch's layer on the concatenated batches."""
    kind, shape = LAYOUTS[layout]
    steps = [torch.cat([batch(step, r, n, *shape) for r, n in enumerate(ns)]) for step, ns in enumerate(sizes)]
    return trained(layer_of(kind, **settings or {}), steps)


def check(found: list[Trained], expected: Trained) -> None:
    for step, (y, gradient) in enumerate(zip(expected.outputs, expected.input_gradients, strict=True)):
        torch.testing.assert_close(torch.cat([f.outputs[step] for f in found]), y, rtol=1e-11, atol=1e-11)
        gradients = torch.cat([f.input_gradients[step] for f in found])
        torch.testing.assert_close(gradients, gradient, rtol=1e-11, atol=1e-11)
    summed = [torch.stack(gs).sum(0) for gs in zip(*(f.parameter_gradients for f in found), strict=True)]
    torch.testing.assert_close(summed, expected.parameter_gradients, rtol=1e-11, atol=1e-11)
    for one in found:
        torch.testing.assert_close(one.buffers, expected.buffers, rtol=1e-11, atol=1e-11)
        assert all(torch.equal(x, y) for x, y in zip(one.buffers, found[0].buffers, strict=True))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sizes", [((6,), (3,)), EVEN, UNEVEN, ONE_EMPTY, ((3, 0, 1, 5), (0, 0, 0, 2))], ids=str)
def test_replicas_give_the_results_of_the_concatenated_batch(sizes: tuple[tuple[int, ...], ...], layout: str) -> None:
    check(InProcessCluster(len(sizes[0])).run(lambda: on_a_replica(sizes, layout)), on_concatenated(sizes, layout))


@pytest.mark.parametrize(
    "settings",
    [{"momentum": None}, {"momentum": 0.4, "eps": 0.1}, {"affine": False}, {"track_running_stats": False}],
    ids=str,
)
def test_settings_have_the_same_effect_as_in_torch(settings: dict[str, Any]) -> None:
    sizes = (*UNEVEN, (2, 3))
    check(
        InProcessCluster(2).run(lambda: on_a_replica(sizes, settings=settings)),
        on_concatenated(sizes, settings=settings),
    )


@pytest.mark.parametrize("sizes", [EVEN, UNEVEN, ONE_EMPTY], ids=str)
def test_processes_and_threads_give_the_same_bits(sizes: tuple[tuple[int, ...], ...]) -> None:
    found = processes.run(on_a_replica, sizes)
    check(found, on_concatenated(sizes))
    simulated = InProcessCluster(2).run(lambda: on_a_replica(sizes))
    for one, other in zip(found, simulated, strict=True):
        for xs, ys in zip(one, other, strict=True):
            assert all(torch.equal(x, y) for x, y in zip(xs, ys, strict=True))


def test_a_mean_far_from_zero_does_not_lose_precision() -> None:
    halves = [random(64, CHANNELS, seed=r) + 1e6 for r in range(2)]
    x = torch.cat(halves)
    naive = x.square().mean(0) - x.mean(0).square()
    assert (naive - x.double().var(0, correction=0)).abs().min() > 1, "the data must expose a numerically bad formula"

    def act() -> Trained:
        context = Replicator().context
        layer = global_batch_norm(layer_of(nn.BatchNorm1d).float(), context)
        return trained(layer, [halves[context.rank]])

    found, expected = InProcessCluster(2).run(act), trained(layer_of(nn.BatchNorm1d), [x.double()])
    for name in ("outputs", "input_gradients"):
        here = torch.cat([getattr(f, name)[0] for f in found]).double()
        torch.testing.assert_close(here, getattr(expected, name)[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found[0].buffers[:2], [b.float() for b in expected.buffers[:2]])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_rounded_once(dtype: torch.dtype) -> None:
    halves = [(random(20, CHANNELS, seed=r) + 5).to(dtype) for r in range(2)]

    def act(cast: torch.dtype) -> Trained:
        context = Replicator().context
        layer = global_batch_norm(layer_of(nn.BatchNorm1d).to(dtype).to(cast), context)
        return trained(layer, [halves[context.rank].to(cast)])

    found, exact = InProcessCluster(2).run(lambda: act(dtype)), InProcessCluster(2).run(lambda: act(torch.float32))
    for one, other in zip(found, exact, strict=True):
        assert one.outputs[0].dtype == one.input_gradients[0].dtype == one.parameter_gradients[0].dtype == dtype
        assert torch.equal(one.outputs[0], other.outputs[0].to(dtype))


def test_half_inputs_with_single_parameters() -> None:
    # As under autocast.
    def act() -> Trained:
        return trained(GlobalBatchNorm(CHANNELS, Replicator().context), [random(9, CHANNELS).bfloat16()])

    (found,) = InProcessCluster(1).run(act)
    assert found.outputs[0].dtype == torch.bfloat16
    assert [g.dtype for g in found.parameter_gradients] == [torch.float32] * 2


def test_nothing_is_exchanged_in_eval_mode() -> None:
    x = random(4, CHANNELS, 2, 2, dtype=torch.float64)
    layer = layer_of(nn.BatchNorm2d)
    trained(layer, [x + 1])
    layer.eval()

    def act() -> tuple[Tensor, int]:
        context = Replicator().context
        converted = global_batch_norm(deepcopy(layer), context)
        return (converted(x) if context.rank == 0 else x), calls(context)

    (found, number), _ = InProcessCluster(2).run(act)
    assert torch.equal(found, layer(x))
    assert number == 0


@pytest.mark.parametrize("needs", [True, False])
def test_one_exchange_in_forward_and_one_in_backward_if_gradients_are_needed(needs: bool) -> None:
    def act() -> tuple[int, int]:
        context = Replicator().context
        layer = GlobalBatchNorm(CHANNELS, context)
        y = layer(random(4, CHANNELS).requires_grad_(needs))
        in_forward = calls(context)
        y.square().sum().backward()
        return in_forward, calls(context) - in_forward

    # Without an input gradient, backward exchanges no sums.
    assert InProcessCluster(2).run(act) == [(1, int(needs))] * 2


def calls(context: Context) -> int:
    return context._contract.calls


def test_one_value_over_all_replicas_is_an_error() -> None:
    def act(sizes: tuple[int, int]) -> Tensor:
        context = Replicator().context
        layer = GlobalBatchNorm(CHANNELS, context)
        try:
            return layer(random(sizes[context.rank], CHANNELS))
        except ValueError:
            assert layer.num_batches_tracked == 0
            raise

    with pytest.raises(ValueError, match="more than 1 value per channel"):
        InProcessCluster(2).run(lambda: act((0, 1)))
    assert [len(y) for y in InProcessCluster(2).run(lambda: act((1, 1)))] == [1, 1]


def test_empty_batches_change_nothing() -> None:
    def act() -> GlobalBatchNorm:
        layer = GlobalBatchNorm(CHANNELS, Replicator().context)
        found = trained(layer, [torch.empty(0, CHANNELS)])
        assert found.outputs[0].shape == found.input_gradients[0].shape == (0, CHANNELS)
        assert all((g == 0).all() for g in found.parameter_gradients)
        return layer

    for layer in InProcessCluster(2).run(act):
        assert (layer.running_mean == 0).all()
        assert (layer.running_var == 1).all()


@pytest.mark.parametrize("shape", [(4, CHANNELS + 1), (CHANNELS,)])
@pytest.mark.parametrize("training", [True, False])
def test_a_wrong_number_of_channels_is_an_error(shape: tuple[int, ...], training: bool) -> None:
    layer = GlobalBatchNorm(CHANNELS, Replicator().context).train(training)
    with pytest.raises(ValueError, match="3 channels"):
        layer(torch.ones(shape))


def test_second_derivatives_are_an_error() -> None:
    layer = GlobalBatchNorm(CHANNELS, Replicator().context)
    x = random(4, CHANNELS).requires_grad_()
    (gradient,) = torch.autograd.grad(layer(x).pow(3).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


class Twice(nn.Module):
    """Has one norm under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = self.again = nn.BatchNorm1d(CHANNELS, momentum=None)
        self.inner = nn.Sequential(nn.Linear(CHANNELS, CHANNELS), nn.SyncBatchNorm(CHANNELS, affine=False))


def test_a_converted_model_has_the_same_parameters_and_buffers() -> None:
    model = Twice()
    model.inner.eval()
    before = model.state_dict(keep_vars=True)
    norm = model.first
    converted = global_batch_norm(model, Replicator().context)
    after = converted.state_dict(keep_vars=True)
    assert converted is model
    assert list(before) == list(after)
    assert all(before[name] is after[name] for name in before)
    assert isinstance(model.first, GlobalBatchNorm)
    assert model.first is model.again
    assert (model.first.training, model.first.momentum, model.first.eps) == (True, None, norm.eps)
    synced = model.inner[1]
    assert isinstance(synced, GlobalBatchNorm)
    assert (synced.training, synced.affine, synced.weight) == (False, False, None)


def test_a_single_layer_without_statistics_is_converted() -> None:
    layer = nn.BatchNorm2d(CHANNELS, track_running_stats=False)
    layer.bias = None
    converted = global_batch_norm(layer, Replicator().context)
    assert isinstance(converted, GlobalBatchNorm)
    assert (converted.weight is layer.weight, converted.bias, converted.running_mean) == (True, None, None)
    assert list(converted.buffers()) == []


def test_a_lazy_layer_without_a_first_batch_is_an_error() -> None:
    model = nn.Sequential(nn.LazyBatchNorm1d())
    context = Replicator().context
    with pytest.raises(ValueError, match="lazy"):
        global_batch_norm(model, context)
    model(torch.ones(2, CHANNELS))
    assert global_batch_norm(model, context)[0].num_features == CHANNELS


def test_deep_copies_share_the_context() -> None:
    def act() -> bool:
        context = Replicator().context
        layer = GlobalBatchNorm(CHANNELS, context)
        copy = deepcopy(nn.Sequential(layer))[0]
        x = batch(0, context.rank, 4).float()
        same = torch.equal(layer(x), copy(x))
        assert calls(context) == 2
        assert copy.weight is not layer.weight
        return same

    assert InProcessCluster(2).run(act) == [True, True]


def build() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(16, 2)
    ).double()


def train(model: nn.Module, optimizer: torch.optim.Optimizer, part: slice) -> None:
    for step in range(4):
        x = random(8, 1, 4, 4, seed=step, dtype=torch.float64)[part]
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


def as_a_replica(overlap: bool) -> dict[str, Tensor]:
    """The state of a model after training on two replicas; a module-level function, for processes."""
    replicator = Replicator("dense")
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)  # created before the norms are replaced
    global_batch_norm(model, replicator.context)
    wrapped, optimizer = replicator.wrap(model, optimizer, overlap=overlap)
    train(wrapped, optimizer, slice(replicator.rank, None, 2))
    return model.state_dict()


@pytest.mark.parametrize("where", ["threads", "processes", "processes that overlap"])
def test_two_replicas_train_as_one_with_all_examples(where: str) -> None:
    expected = build()
    train(expected, torch.optim.SGD(expected.parameters(), lr=0.1, momentum=0.9), slice(None))
    overlap = "overlap" in where
    found = (
        InProcessCluster(2).run(lambda: as_a_replica(overlap))
        if where == "threads"
        else processes.run(as_a_replica, overlap)
    )
    for state in found:
        torch.testing.assert_close(state, expected.state_dict(), rtol=1e-10, atol=1e-10)


def test_refresh_batchnorm_uses_the_batches_of_all_replicas() -> None:
    batches = [[batch(step, rank, 5).float() for step in range(3)] for rank in range(2)]

    def act() -> nn.Module:
        replicator = Replicator()
        model = global_batch_norm(nn.Sequential(nn.BatchNorm1d(CHANNELS)), replicator.context)
        replicator.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
        handle = replicator.handles[0]
        mean = handle.average()
        handle.refresh_batchnorm(batches[replicator.rank], mean)
        return mean[0]

    expected = torch.stack([torch.cat(parts).mean(0) for parts in zip(*batches, strict=True)]).mean(0)
    for layer in InProcessCluster(2).run(act):
        torch.testing.assert_close(layer.running_mean, expected)


def test_torchs_layer_loads_the_state(tmp_path: Path) -> None:
    layer = GlobalBatchNorm(CHANNELS, Replicator().context)
    layer(random(6, CHANNELS))
    torch.save(layer.state_dict(), tmp_path / "state.pt")
    plain = nn.BatchNorm1d(CHANNELS)
    plain.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    x = random(4, CHANNELS, seed=2)
    assert torch.equal(plain.eval()(x), layer.eval()(x))
