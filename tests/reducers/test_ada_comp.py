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
def test_bins_are_the_papers_by_kind_of_layer(kind, bin_size):
    assert AdaComp().specialize(parameter(kind, 100, 100)) == AdaComp(bin_size)
    assert AdaComp(64).specialize(parameter(kind, 100, 100)) == AdaComp(64)


def test_small_tensors_and_other_layers_are_sent_as_they_are():
    assert AdaComp().specialize(parameter("dense", 1999)) == Average()
    assert AdaComp().specialize(parameter("dense", 2000)) == AdaComp(500)
    assert AdaComp().specialize(parameter("norm", 10_000)) == Average()
    assert AdaComp(50).specialize(parameter("norm", 10_000)) == AdaComp(50)


def test_each_layer_has_a_scale_of_its_own():
    units = DataParallel(AdaComp()).units(replica_of(nn.Sequential(nn.Conv2d(4, 8, 3), nn.Conv2d(8, 8, 3))))
    assert [unit.names for unit in units if isinstance(unit.reducer, AdaComp)] == [("0.weight",), ("1.weight",)]


@pytest.mark.parametrize("coding", [None, Entropy()])
@pytest.mark.parametrize("form", ["compact", "paper"])
def test_what_is_left_unsaid_is_remembered_to_the_bit(form, coding):
    reducer = AdaComp(50, form=form, coding=coding)
    draws = torch.Generator().manual_seed(0)
    state = reducer.init(torch.zeros(1234), 0)
    residual = torch.zeros(1234)
    for _ in range(5):
        gradient = torch.randn(1234, generator=draws)
        conversation = reducer.reduce(gradient, state)
        message = next(conversation)
        sent = payload.decode(payload.encode(message.tensor, message.codec, 0), message.codec, 0, gradient)
        assert torch.equal(sent, materialize(message.tensor)), "decoded as it was meant"
        with pytest.raises(StopIteration) as end:
            conversation.send(extend.Reply(sent, sent))
        (_, state) = end.value.value
        residual = (residual + gradient) - sent
        assert torch.equal(reducer.residual(state), residual)


def test_both_forms_say_the_same_and_the_compact_one_is_shorter():
    draws = torch.Generator().manual_seed(0)
    states = [AdaComp(500, form=form).init(torch.zeros(100_000), 0) for form in ("compact", "paper")]
    sizes = [0, 0]
    for _ in range(30):
        gradient = torch.randn(100_000, generator=draws)
        said = []
        for i, form in enumerate(("compact", "paper")):
            conversation = AdaComp(500, form=form).reduce(gradient, states[i])
            message = next(conversation)
            said.append(materialize(message.tensor))
            sizes[i] = payload.encode(message.tensor, message.codec, 0).numel()
            with pytest.raises(StopIteration) as end:
                conversation.send(extend.Reply(said[-1], said[-1]))
            states[i] = end.value.value[1]
        assert torch.equal(*said)
    assert (AdaComp(500).codec, AdaComp(500, form="paper").codec) == (SparseSign(), BinnedSign(500))
    compact, paper = (400_000 / size for size in sizes)
    # On normal gradients the paper's own arithmetic gives about 170 times, at 16 bits an element.
    assert 120 < paper < 220
    assert compact > 1.5 * paper


def test_what_is_said_can_be_squeezed_further():
    squeezed = AdaComp(500, form="paper", coding=Entropy())
    assert squeezed.codec == Chain(BinnedSign(500), Entropy())
    assert parse(repr(squeezed)) == squeezed
    sizes = []
    for reducer in (AdaComp(500, form="paper"), squeezed):
        gradient = torch.randn(100_000, generator=torch.Generator().manual_seed(0))
        message = next(reducer.reduce(gradient, reducer.init(gradient, 0)))
        sizes.append(payload.encode(message.tensor, message.codec, 0).numel())
    assert sizes[1] < 0.95 * sizes[0], "places in bins are 14 bits, of which only 500 values occur"


def trained(method, optimizer, ranks, steps=60):
    """How far a linear map is from what its examples show, of which every rank has its own."""
    truth = torch.randn(20, 60, generator=torch.Generator().manual_seed(1))
    models = [nn.Linear(60, 20, bias=False) for _ in range(ranks)]
    for model in models:
        nn.init.zeros_(model.weight)
    replicas = [replica_of(model, rank=rank, size=ranks) for rank, model in enumerate(models)]
    optimizers = [optimizer(model.parameters()) for model in models]
    strategy, sender = DataParallel(method), Simulated(ranks)
    units, states = strategy.units(replicas[0]), [strategy.init(replica) for replica in replicas]
    draws = torch.Generator().manual_seed(2)
    for _ in range(steps):
        for model in models:
            inputs = torch.randn(64 // ranks, 60, generator=draws)
            model.zero_grad()
            (model(inputs) - inputs @ truth.T).square().sum(1).mean().backward()
        gradients = [{"weight": model.weight.grad} for model in models]
        talks = [strategy.exchange(units, gradients[r], ranks, states[r]) for r in range(ranks)]
        states = [outcome.state for outcome in sender.run(talks)]
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
def test_it_learns_with_one_rank_or_many(optimizer, ranks):
    assert trained(Average(), optimizer, ranks) < 0.1
    assert trained(AdaComp(50), optimizer, ranks) < 0.3


def test_ranks_agree_and_the_mean_of_what_they_say_comes_back():
    shape = (40, 60)
    ranks = 3
    reducer = AdaComp(50)
    gradients = [torch.randn(shape, generator=torch.Generator().manual_seed(rank)) for rank in range(ranks)]
    replica = replica_of(nn.Linear(60, 40, bias=False), size=ranks)
    strategy = DataParallel(reducer)
    units = strategy.units(replica)
    held = [{"weight": gradient.clone()} for gradient in gradients]
    sender = Simulated(ranks)
    sender.run([strategy.exchange(units, held[r], ranks, strategy.init(replica)) for r in range(ranks)])
    assert all(torch.equal(one["weight"], held[0]["weight"]) for one in held)
    alone = [next(reducer.reduce(gradient, reducer.init(gradient, 0))).tensor.dense() for gradient in gradients]
    torch.testing.assert_close(held[0]["weight"], sum(alone) / ranks)


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
def test_a_wrong_setting_is_shown(settings, message):
    with pytest.raises(ValueError, match=message):
        AdaComp(**settings)
