import pytest
import torch
from torch import nn

import thinwire
from thinwire import AdaComp, Average, BinMarks, DataParallel, Marks, Parameter, Simulated, payload, replica_of
from thinwire.lazy import dense, outline


def parameter(kind, *shape):
    return Parameter("name", kind, outline(torch.empty(shape)))


@pytest.mark.parametrize(
    ("kind", "bin_size"), [("conv", 50), ("dense", 500), ("recurrent", 500), ("embedding", 500), ("attention", 500)]
)
def test_bins_are_the_papers_by_kind_of_layer(kind, bin_size):
    assert AdaComp().suited(parameter(kind, 100, 100)) == AdaComp(bin_size)
    assert AdaComp(64).suited(parameter(kind, 100, 100)) == AdaComp(64)


def test_small_tensors_and_other_layers_are_sent_as_they_are():
    assert AdaComp().suited(parameter("dense", 1999)) == Average()
    assert AdaComp().suited(parameter("dense", 2000)) == AdaComp(500)
    assert AdaComp().suited(parameter("norm", 10_000)) == Average()
    assert AdaComp(50).suited(parameter("norm", 10_000)) == AdaComp(50)


def test_each_layer_has_a_scale_of_its_own():
    units = DataParallel(AdaComp()).units(replica_of(nn.Sequential(nn.Conv2d(4, 8, 3), nn.Conv2d(8, 8, 3))))
    assert [unit.names for unit in units if isinstance(unit.reducer, AdaComp)] == [("0.weight",), ("1.weight",)]


@pytest.mark.parametrize("form", ["compact", "paper"])
def test_what_is_left_unsaid_is_remembered_to_the_bit(form):
    reducer = AdaComp(50, form=form)
    draws = torch.Generator().manual_seed(0)
    state = reducer.init(torch.zeros(1234), 0)
    residual = torch.zeros(1234)
    for _ in range(5):
        gradient = torch.randn(1234, generator=draws)
        conversation = reducer.reduce(gradient, state)
        message = next(conversation)
        sent = payload.decode(payload.encode(message.tensor, message.codec, 0), message.codec, 0, gradient)
        assert torch.equal(sent, dense(message.tensor)), "decoded as it was meant"
        with pytest.raises(StopIteration) as end:
            conversation.send(thinwire.Reply(sent, sent))
        (_, state) = end.value.value
        residual = (residual + gradient) - sent
        assert torch.equal(reducer.unsaid(state), residual)


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
            said.append(dense(message.tensor))
            sizes[i] = payload.encode(message.tensor, message.codec, 0).numel()
            with pytest.raises(StopIteration) as end:
                conversation.send(thinwire.Reply(said[-1], said[-1]))
            states[i] = end.value.value[1]
        assert torch.equal(*said)
    assert (AdaComp(500).codec, AdaComp(500, form="paper").codec) == (Marks(), BinMarks(500))
    compact, paper = (400_000 / size for size in sizes)
    # On normal gradients the paper's own arithmetic gives about 170 times, at 16 bits an element.
    assert 120 < paper < 220
    assert compact > 1.5 * paper


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
        ({"bin_size": 20_000, "form": "paper"}, "bins of 1 to 16383 entries, not 20000"),
    ],
)
def test_a_wrong_setting_is_shown(settings, message):
    with pytest.raises(ValueError, match=message):
        AdaComp(**settings)
