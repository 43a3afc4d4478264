"""LGC: training the auto-encoder, sending codes, and training again when their error is too large."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from thinwire import LGC, Identity, LeaderTopK, LGCServer, Quantize, Server
from thinwire.core.lazy import outline
from thinwire.extend import Parameter, Reducer
from thinwire.kernels import positions
from thinwire.reducers.auto_encoder import AutoEncoder, stepped
from thinwire.reducers.learned import Learned, learning_of

from ..helpers import ReducerStep, random, same_bits, step

LENGTH, RANKS = 320, 3
QUICK = {"learning_steps": 60, "rate": 3e-3, "check_every": 5, "bound": 0.6}


def correlated(seed: int, drifted: bool = False) -> list[Tensor]:
    """Common values, sorted, plus noise for each rank; `drifted` shuffles the common values by the seed."""
    common = random(LENGTH, seed=seed).sort().values
    if drifted:
        common = common[torch.randperm(LENGTH, generator=torch.Generator().manual_seed(seed))]
    return [common + 0.2 * random(LENGTH, seed=1000 * seed + rank) for rank in range(RANKS)]


def initial(code: Learned, ranks: int = RANKS) -> tuple[Reducer, list[Any]]:
    server = 1 if isinstance(code, LGCServer) else None
    like = torch.zeros(LENGTH)
    specialized = code.for_leader(Parameter("x", "dense", outline(like), tuple(range(ranks)), server=server), hold=1)
    return specialized, [specialized.init(like, 7) for _ in range(ranks)]


@cache  # several tests start from its result; states are not modified
def trained(code: Learned, steps: int) -> tuple[Reducer, ReducerStep]:
    specialized, states = initial(code)
    for i in range(steps):
        result = step(specialized, correlated(i), states)
        states = result.states
    return specialized, result


FORMS = {
    "ring": LGC(**QUICK),
    "ring, sent": LGC(**QUICK, weights="sent"),
    "server": LGCServer(**QUICK),
    "server, as in the paper": LGCServer(**QUICK, similarity=0.1, decoders="rank"),
}
every_form = pytest.mark.parametrize("code", FORMS.values(), ids=list(FORMS))


def test_the_network_has_the_specified_sizes() -> None:
    ring, server = AutoEncoder(), AutoEncoder(decoders=4, extra_channel=True)
    assert ring.sizes == [172_996, 43_648 + 33]
    assert server.sizes == [172_996, *[43_648 + 34] * 4]
    for length in (1, 15, 16, 17, 320):
        weights = ring.initial(0).weights
        code = ring.encode(weights, torch.zeros(2, length))
        assert code.shape == (2, 4, -(-length // 16))
        assert ring.decode(weights, code[0], length).shape == (length,)


def test_a_step_of_adam_equals_torchs() -> None:
    x = random(50).requires_grad_()
    adam, ours = torch.optim.Adam([x], lr=1e-2), AutoEncoder().initial(0)
    ours = ours._replace(weights=x.detach().clone(), mean=torch.zeros(50), square=torch.zeros(50))
    for i in range(5):
        x.grad = random(50, seed=i + 1)
        ours = stepped(ours, x.grad, "adam", 1e-2)
        adam.step()
        torch.testing.assert_close(ours.weights, x.detach())
    assert torch.equal(stepped(ours, random(50), "sgd", 0.5).weights, ours.weights - 0.5 * random(50))


@every_form
def test_while_learning_the_result_is_the_uncompressed_mean(code: Learned) -> None:
    specialized, states = initial(code)
    for i in range(3):
        xs = correlated(i)
        result = step(specialized, xs, states)
        states = result.states
        torch.testing.assert_close(result.reduced, torch.stack(xs).mean(0))
        assert all(same_bits(reply.sent, x) for reply, x in zip(result.replies, xs, strict=True))


@every_form
def test_after_learning_codes_approximate_the_mean_in_fewer_bytes(code: Learned) -> None:
    specialized, result = trained(code, QUICK["learning_steps"])
    learning = learning_of(specialized, result.states[0])
    assert learning is not None
    assert learning.error < 0.6
    assert not learning.training
    assert learning.relearned == 0
    xs = correlated(100)
    coded = step(specialized, xs, result.states)
    error = (coded.reduced - torch.stack(xs).mean(0)).norm() / torch.stack(xs).mean(0).norm()
    assert 0 < error < 0.6
    assert all(same_bits(reply.reduced, coded.reduced) for reply in coded.replies)
    payloads, common = [meter.payload_bytes for meter in coded.meters], 4 * LENGTH // 16 * 4
    own = 3 * 4 + positions.coded_bytes(3, LENGTH)  # three values and their positions
    # With the server at rank 1, which replies in 16 bits, rank 0 is the leader of this step and sends the code.
    assert payloads == ([own + common, own + 2 * LENGTH, own] if isinstance(code, LGCServer) else [common] * RANKS)


def test_sent_weights_equal_those_that_each_rank_would_learn() -> None:
    _, ours = trained(LGC(**QUICK), 60)
    _, theirs = trained(LGC(**QUICK, weights="sent"), 60)
    for a, b in zip(ours.states, theirs.states, strict=True):
        assert same_bits(a.trained.weights, b.trained.weights)
    trainer, *others = (meter.payload_bytes for meter in theirs.meters)
    assert trainer - others[0] == 4 * (LENGTH + 1) + 4 * (172_996 + 43_681), "the mean, the error and all weights"


def test_the_server_sends_its_encoder_and_keeps_its_decoders() -> None:
    _, result = trained(LGCServer(**QUICK, similarity=0.1), 60)
    encoder = 172_996
    weights = [state.trained.weights for state in result.states]
    assert same_bits(weights[0][:encoder], weights[1][:encoder])
    assert same_bits(weights[2][:encoder], weights[1][:encoder])
    assert not torch.equal(weights[0][encoder:], weights[1][encoder:]), "only the server trains decoders"
    worker, server, _ = (meter.payload_bytes for meter in result.meters)
    assert server - worker == 4 * (LENGTH + 1) + 4 * encoder


@every_form
def test_drift_is_detected_and_the_codes_are_learned_again(code: Learned) -> None:
    specialized, result = trained(code, 60)
    states, uncompressed = result.states, []
    for i in range(12):
        result = step(specialized, correlated(200 + i, drifted=True), states)
        states = result.states
        learning = learning_of(specialized, states[0])
        assert learning is not None
        assert all(learning_of(specialized, state) == learning for state in states), "all ranks have the same report"
        uncompressed.append(learning.training)
    assert uncompressed == [False] * 4 + [True] * 8, "the error is checked in the fifth step"
    assert learning.relearned == 1
    for i in range(60):  # after learning again, codes are sent
        result = step(specialized, correlated(300 + i), states)
        states = result.states
    found = learning_of(specialized, states[0])
    assert found is not None
    assert found.relearned == 1
    assert not found.training
    assert found.error < 0.6


@pytest.mark.parametrize("form", ["ring", "server"])
def test_uncorrelated_values_are_never_coded(form: str) -> None:
    specialized, states = initial(replace(FORMS[form], learning_steps=30))
    for i in range(70):
        result = step(specialized, [random(LENGTH, seed=1000 * i + rank) for rank in range(RANKS)], states)
        states = result.states
    learning = learning_of(specialized, states[0])
    assert learning is not None
    assert learning.training
    assert learning.relearned == 2


@pytest.mark.parametrize("feedback", ["own", "mean", "none"])
def test_the_feedback_setting_determines_the_residual(feedback: str) -> None:
    specialized, result = trained(LGC(**QUICK, feedback=feedback), 60)
    xs = correlated(100)
    coded = step(specialized, xs, result.states)
    for x, reply in zip(xs, coded.replies, strict=True):
        if feedback == "none":
            assert same_bits(reply.sent, x)
        elif feedback == "mean":
            assert same_bits(reply.sent, coded.reduced)
        else:
            assert not torch.equal(reply.sent, x)
            assert not torch.equal(reply.sent, coded.reduced)
            assert (reply.sent - x).norm() < x.norm()


def test_codes_are_compressed_by_a_codec_and_trained_with_it() -> None:
    specialized, result = trained(LGC(**QUICK, codec=Quantize(4)), 60)
    learning = learning_of(specialized, result.states[0])
    assert learning is not None
    assert learning.error < 0.6
    coded = step(specialized, correlated(100), result.states)
    assert coded.meters[0].payload_bytes == 40 + 4  # 80 numbers of 4 bits, and a scale


def test_smaller_gradients_do_not_increase_the_error() -> None:
    leader_top_k = LeaderTopK(0.5, values=LGC(**QUICK), order="value")
    specialized = leader_top_k.specialize(Parameter("x", "dense", outline(torch.empty(20, 32)), (0, 1, 2)))
    states = [specialized.init(torch.zeros(20, 32), 3) for _ in range(RANKS)]
    errors = []
    for i in range(70):
        scale = 1.0 if i < 60 else 1e-4
        common = random(20, 32, seed=i)
        result = step(
            specialized, [scale * (common + 0.2 * random(20, 32, seed=1000 * i + r)) for r in range(RANKS)], states
        )
        states = result.states
        learning = learning_of(specialized, states[0])
        assert learning is not None
        errors.append(learning.error)
    assert learning.relearned == 0
    assert errors[-1] != errors[59], "the error was checked again"
    assert errors[-1] < 0.6


def test_an_invalid_setting_is_an_error() -> None:
    like = Parameter("x", "dense", outline(torch.empty(8, 8)), (0, 1))
    for make, message in (
        (lambda: LGC(-1), "learning_steps of 0 or more, not -1"),
        (lambda: LGC(channels=0), "channels of 1 or more"),
        (lambda: LGC(check_every=1), "check_every of 2 or more"),
        (lambda: LGC(feedback="all"), "'own', 'mean', 'none', not 'all'"),
        (lambda: LGCServer(feedback="own"), "'none', 'mean', not 'own'"),
        (lambda: LGC(optimizer="lbfgs"), "'adam', 'sgd', not 'lbfgs'"),
        (lambda: LGC(rate=0.0), "rate above 0"),
        (lambda: LGC(bound=1.0), "above 0 and below 1"),
        (lambda: LGC(weights="mine"), "'alike', 'sent', not 'mine'"),
        (lambda: LGC(codec=3), "takes a codec, not 3"),  # type: ignore[arg-type]
        (lambda: LGCServer(innovation=0.0), "between 0 and 1"),
        (lambda: LGCServer(similarity=1.0), "0 or more and below 1"),
        (lambda: LGCServer(decoders="mine"), "'turn' or 'rank', not 'mine'"),
        (lambda: LGCServer(down=None), "a codec for down"),  # type: ignore[arg-type]
        (lambda: LeaderTopK(values=LGCServer()).specialize(like), "needs a parameter server"),
        (
            lambda: Server(LeaderTopK(values=LGC()), Identity()).specialize(like),
            "through a parameter server, use LGCServer",
        ),
        (lambda: LGC().specialize(like), "for values at a leader's positions"),
    ):
        with pytest.raises(ValueError, match=message):
            make()


@every_form
def test_steps_with_zero_gradients_do_not_train_the_auto_encoder(code: Learned) -> None:
    specialized, states = initial(code)
    for i in range(10):
        xs = correlated(i) if i % 2 else [torch.zeros(LENGTH)] * RANKS
        result = step(specialized, xs, states)
        states = result.states
        learning = learning_of(specialized, states[0])
        assert learning is not None
        assert 0 < learning.error < 1.5
    learner = states[1 if isinstance(code, LGCServer) else 0].trained
    assert learner.steps == 5


@every_form
def test_an_auto_encoder_that_diverges_is_reset(code: Learned) -> None:
    specialized, states = initial(replace(code, optimizer="sgd", rate=1e9))
    for i in range(8):
        result = step(specialized, correlated(i), states)
        states = result.states
        learning = learning_of(specialized, states[0])
        assert learning is not None
        assert learning.error <= 2, "never NaN, which would count as a non-finite gradient"
        assert result.reduced.isfinite().all()
        assert all(state.trained.weights.isfinite().all() for state in states)


def test_a_rank_without_gradients_does_not_count_in_the_mean() -> None:
    specialized = LGC(5).for_leader(Parameter("x", "dense", outline(torch.zeros(LENGTH)), (0, 2)), hold=1)
    states = [specialized.init(torch.zeros(LENGTH), 3) for _ in range(3)]
    result = step(specialized, [torch.ones(LENGTH), torch.zeros(LENGTH), torch.ones(LENGTH)], states)
    assert torch.equal(result.reduced, torch.ones(LENGTH))


def test_initial_weights_do_not_depend_on_the_default_dtype() -> None:
    expected = AutoEncoder().initial(3).weights
    torch.set_default_dtype(torch.float64)
    try:
        assert same_bits(AutoEncoder().initial(3).weights, expected)
    finally:
        torch.set_default_dtype(torch.float32)
