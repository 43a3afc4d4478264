import pytest
import torch
from torch import nn

from thinwire import AdaComp, Average, BinnedSign, Chain, DataParallel, Entropy, SparseSign, TopK, extend, parse
from thinwire.core.lazy import materialize, outline
from thinwire.extend import Parameter
from thinwire.simulate import Simulated, replica_of
from thinwire.wire import payload


def parameter(kind, *shape):
    return Parameter("name", kind, outline(torch.empty(shape)))


@pytest.mark.parametrize(
    ("kind", "bin_size"), [("conv", 50), ("dense", 500), ("recurrent", 500), ("embedding", 500), ("attention", 500)]
)
def test_bin_sizes_by_kind_of_layer_are_the_papers(kind, bin_size):
    assert AdaComp().specialize(parameter(kind, 100, 100)) == AdaComp(bin_size)
    assert AdaComp(64).specialize(parameter(kind, 100, 100)) == AdaComp(64)


def test_small_tensors_and_other_layers_are_sent_uncompressed():
    assert AdaComp().specialize(parameter("dense", 1999)) == Average()
    assert AdaComp().specialize(parameter("dense", 2000)) == AdaComp(500)
    assert AdaComp().specialize(parameter("norm", 10_000)) == Average()
    assert AdaComp(50).specialize(parameter("norm", 10_000)) == AdaComp(50)


def test_layers_are_not_fused():
    units = DataParallel(AdaComp()).units(replica_of(nn.Sequential(nn.Conv2d(4, 8, 3), nn.Conv2d(8, 8, 3))))
    assert [unit.names for unit in units if isinstance(unit.reducer, AdaComp)] == [("0.weight",), ("1.weight",)]


@pytest.mark.parametrize("coding", [None, Entropy()])
@pytest.mark.parametrize("form", ["compact", "paper"])
def test_the_residual_is_exact_to_the_bit(form, coding):
    reducer = AdaComp(50, form=form, coding=coding)
    generator = torch.Generator().manual_seed(0)
    state = reducer.init(torch.zeros(1234), 0)
    residual = torch.zeros(1234)
    for _ in range(5):
        gradient = torch.randn(1234, generator=generator)
        conversation = reducer.reduce(gradient, state)
        message = next(conversation)
        sent = payload.decode(payload.encode(message.tensor, message.codec, 0), message.codec, 0, gradient)
        assert torch.equal(sent, materialize(message.tensor)), "the payload decodes to the selected tensor"
        with pytest.raises(StopIteration) as end:
            conversation.send(extend.Reply(sent, sent))
        (_, state) = end.value.value
        residual = (residual + gradient) - sent
        assert torch.equal(reducer.residual(state), residual)


def test_both_forms_send_the_same_tensor_and_the_compact_one_is_shorter():
    generator = torch.Generator().manual_seed(0)
    states = [AdaComp(500, form=form).init(torch.zeros(100_000), 0) for form in ("compact", "paper")]
    sizes = [0, 0]
    for _ in range(30):
        gradient = torch.randn(100_000, generator=generator)
        sent = []
        for i, form in enumerate(("compact", "paper")):
            conversation = AdaComp(500, form=form).reduce(gradient, states[i])
            message = next(conversation)
            sent.append(materialize(message.tensor))
            sizes[i] = payload.encode(message.tensor, message.codec, 0).numel()
            with pytest.raises(StopIteration) as end:
                conversation.send(extend.Reply(sent[-1], sent[-1]))
            states[i] = end.value.value[1]
        assert torch.equal(*sent)
    assert (AdaComp(500).codec, AdaComp(500, form="paper").codec) == (SparseSign(), BinnedSign(500))
    compact, paper = (400_000 / size for size in sizes)
    # For normally distributed gradients the paper's arithmetic gives about 170x, at 16 bits per element.
    assert 120 < paper < 220
    assert compact > 1.5 * paper


def test_the_payload_can_be_entropy_coded():
    coded = AdaComp(500, form="paper", coding=Entropy())
    assert coded.codec == Chain(BinnedSign(500), Entropy())
    assert parse(repr(coded)) == coded
    sizes = []
    for reducer in (AdaComp(500, form="paper"), coded):
        gradient = torch.randn(100_000, generator=torch.Generator().manual_seed(0))
        message = next(reducer.reduce(gradient, reducer.init(gradient, 0)))
        sizes.append(payload.encode(message.tensor, message.codec, 0).numel())
    assert sizes[1] < 0.95 * sizes[0], "positions in bins take 14 bits, of which only 500 values occur"


def trained(method, optimizer, ranks, steps=60):
    """The relative error of a linear map after training; every rank has its own examples."""
    truth = torch.randn(20, 60, generator=torch.Generator().manual_seed(1))
    models = [nn.Linear(60, 20, bias=False) for _ in range(ranks)]
    for model in models:
        nn.init.zeros_(model.weight)
    replicas = [replica_of(model, rank=rank, size=ranks) for rank, model in enumerate(models)]
    optimizers = [optimizer(model.parameters()) for model in models]
    strategy, transport = DataParallel(method), Simulated(ranks)
    units, states = strategy.units(replicas[0]), [strategy.init(replica) for replica in replicas]
    generator = torch.Generator().manual_seed(2)
    for _ in range(steps):
        for model in models:
            inputs = torch.randn(64 // ranks, 60, generator=generator)
            model.zero_grad()
            (model(inputs) - inputs @ truth.T).square().sum(1).mean().backward()
        gradients = [{"weight": model.weight.grad} for model in models]
        exchanges = [strategy.exchange(units, gradients[r], ranks, states[r]) for r in range(ranks)]
        states = [result.state for result in transport.run(exchanges)]
        for one in optimizers:
            one.step()
    assert all(torch.equal(model.weight, models[0].weight) for model in models)
    return float((models[0].weight - truth).detach().norm() / truth.norm())


SGD, ADAM = lambda p: torch.optim.SGD(p, 0.01, momentum=0.9), lambda p: torch.optim.Adam(p, 0.1)


@pytest.mark.parametrize(
    ("optimizer", "ranks"),
    [(SGD, 1), (SGD, 8), (SGD, 32), (ADAM, 1), (ADAM, 8)],
    ids=["sgd-1", "sgd-8", "sgd-32", "adam-1", "adam-8"],
)
def test_training_converges_with_one_rank_or_many(optimizer, ranks):
    assert trained(Average(), optimizer, ranks) < 0.1
    assert trained(AdaComp(50), optimizer, ranks) < 0.3


def test_all_ranks_get_the_mean_of_the_sent_tensors():
    shape = (40, 60)
    ranks = 3
    reducer = AdaComp(50)
    gradients = [torch.randn(shape, generator=torch.Generator().manual_seed(rank)) for rank in range(ranks)]
    replica = replica_of(nn.Linear(60, 40, bias=False), size=ranks)
    strategy = DataParallel(reducer)
    units = strategy.units(replica)
    averaged = [{"weight": gradient.clone()} for gradient in gradients]
    transport = Simulated(ranks)
    transport.run([strategy.exchange(units, averaged[r], ranks, strategy.init(replica)) for r in range(ranks)])
    assert all(torch.equal(one["weight"], averaged[0]["weight"]) for one in averaged)
    alone = [next(reducer.reduce(gradient, reducer.init(gradient, 0))).tensor.dense() for gradient in gradients]
    torch.testing.assert_close(averaged[0]["weight"], sum(alone) / ranks)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bin_size": 0}, "bins of 1 entry or more, not 0"),
        ({"bin_size": 2.5}, "not 2.5"),
        ({"factor": 0.5}, "a factor of 1 or more, not 0.5"),
        ({"form": "short"}, "one of 'compact', 'paper', not 'short'"),
        ({"coding": TopK(0.1)}, r"takes codes, such as Entropy\(\), not TopK\(0.1\)"),
        ({"bin_size": 20_000, "form": "paper"}, "bins of 1 to 16383 entries, not 20000"),
    ],
)
def test_an_invalid_setting_is_an_error(settings, message):
    with pytest.raises(ValueError, match=message):
        AdaComp(**settings)
