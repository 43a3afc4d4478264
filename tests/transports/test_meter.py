from dataclasses import fields

import pytest

from thinwire import Meter


def counted() -> Meter:
    return Meter(
        steps=3, rounds=6, dense_bytes=1000, payload_bytes=250, link_bytes=300, dense_link_bytes=1500, skipped=1
    )


def test_the_ratio_is_how_many_times_smaller_the_payload_was() -> None:
    assert counted().ratio == 4.0
    assert Meter().ratio == 1.0


def test_the_numbers_of_a_logger_are_flat_and_complete() -> None:
    numbers = counted().as_dict()
    assert set(numbers) == {f"thinwire/{field.name}" for field in fields(Meter)} | {"thinwire/ratio"}
    assert numbers["thinwire/payload_bytes"] == 250
    assert numbers["thinwire/ratio"] == 4.0
    assert all(isinstance(value, int | float) for value in numbers.values())


def test_the_prefix_can_be_chosen() -> None:
    assert counted().as_dict(prefix="net.")["net.steps"] == 3


def test_counting_goes_on_from_a_checkpoint() -> None:
    meter = Meter()
    meter.load(counted().as_dict(prefix=""))
    assert meter == counted()


@pytest.mark.parametrize(("ranks", "factor"), [(1, 0), (2, 1), (4, 1.5), (10, 1.8)])
def test_a_plain_all_reduce_carries_twice_all_but_a_share(ranks: int, factor: float) -> None:
    meter = Meter()
    for _ in range(2):
        meter.count_dense(1000, ranks)
    assert meter.dense_bytes == 2000
    assert meter.dense_link_bytes == 2000 * factor


def test_a_new_meter_has_counted_nothing() -> None:
    assert not any(getattr(Meter(), field.name) for field in fields(Meter))
