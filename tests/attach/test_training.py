"""Every method trains a plain DDP script from the first step, and keeps all replicas equal to the bit."""

import warnings
from functools import cache

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

import thinwire

from .processes import run
from .training import (
    BY_RANKS,
    FIXED,
    NAMES,
    TINY_BUCKETS,
    all_same,
    buckets_of,
    classifier,
    distance,
    gradients,
    held_out_loss,
    loss_of,
    parameters,
    same,
    sgd,
    totals,
    train,
    trained_ddp,
)

STEPS = 24


def training(method: str, bucket_cap_mb: float | None) -> dict:
    ddp = DistributedDataParallel(classifier(), bucket_cap_mb=bucket_cap_mb)
    handle = thinwire.attach(ddp, method)
    optimizer = sgd(ddp)
    before = held_out_loss(ddp)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        train(ddp, optimizer, range(1))
        first = totals(handle)
        train(ddp, optimizer, range(1, STEPS))
    return {
        "warned": [str(warning.message) for warning in warned],
        "before": before,
        "after": held_out_loss(ddp),
        "buckets": buckets_of(ddp),
        "first": first,
        "totals": totals(handle),
        "parameters": parameters(ddp),
    }


@cache  # two tests check the same training
def trained(method: str, ranks: int, bucket_cap_mb: float | None) -> list[dict]:
    return run(training, method, bucket_cap_mb, ranks=ranks)


@pytest.mark.parametrize(("method", "ranks"), [*BY_RANKS, ("server", 4)])
def test_a_method_lowers_the_loss_and_keeps_replicas_equal(method: str, ranks: int) -> None:
    bucket_cap_mb = TINY_BUCKETS if ranks == 2 else None
    results = trained(method, ranks, bucket_cap_mb)
    assert all(result["after"] < 0.9 * result["before"] for result in results)
    assert all_same(result["parameters"] for result in results)
    for rank, result in enumerate(results):
        # With four ranks, the link of the server carries as many bytes as without compression: it warns.
        assert len(result["warned"]) == (1 if method == "server" and ranks == 4 and rank == 0 else 0)
        first, counted = result["first"], result["totals"]
        dense = sum(p.nbytes for p in result["parameters"].values())
        assert first["dense_bytes"] == dense
        assert first["steps"] == 1
        assert counted["dense_bytes"] == STEPS * dense
        assert counted["steps"] == STEPS
        assert counted["skipped"] == 0
        if bucket_cap_mb is None:
            assert result["buckets"] == 1
        else:
            assert result["buckets"] >= 3


@pytest.mark.parametrize("method", NAMES)
def test_the_first_step_is_compressed(method: str) -> None:
    for result in trained(method, 2, TINY_BUCKETS):
        first, counted = result["first"], result["totals"]
        if method == "dense":
            assert first["payload_bytes"] == first["dense_bytes"]
        else:
            assert first["payload_bytes"] < 0.7 * first["dense_bytes"]
        if method in FIXED and method != "powersgd-half":  # which sends left and right factors in turn
            assert counted["payload_bytes"] == STEPS * first["payload_bytes"]


def dense_and_plain() -> tuple[dict, dict]:
    return trained_ddp("dense", 5), trained_ddp(None, 5)


def test_dense_equals_ddp_to_the_bit_on_two_ranks() -> None:
    for dense, plain in run(dense_and_plain):
        assert same(dense, plain)


def test_dense_equals_ddp_up_to_the_order_of_the_sum_on_four_ranks() -> None:
    for dense, plain in run(dense_and_plain, ranks=4):
        for name, p in plain.items():
            torch.testing.assert_close(dense[name], p)


def first_gradients(method: str | None) -> dict:
    ddp = DistributedDataParallel(classifier())
    if method is not None:
        thinwire.attach(ddp, method)
    loss_of(ddp, 0).backward()
    return gradients(ddp)


def gradients_and_plain(method: str) -> tuple[dict, dict]:
    return first_gradients(method), first_gradients(None)


@pytest.mark.parametrize(("method", "tolerance"), [("fp16", 1e-3), ("bf16", 1e-2), ("int8", 2e-2)])
@pytest.mark.parametrize("ranks", [2, 4])
def test_16_and_8_bits_are_close_to_ddp(method: str, tolerance: float, ranks: int) -> None:
    for compressed, plain in run(gradients_and_plain, method, ranks=ranks):
        assert 0 < distance(compressed, plain) < tolerance
