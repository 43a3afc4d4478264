from dataclasses import fields

import pytest

from thinwire.inspect import Meter


def counted() -> Meter:
    counts = {"steps": 3, "rounds": 6, "dense_bytes": 1000, "link_bytes": 260, "dense_link_bytes": 1500, "skipped": 1}
    meter = Meter(**counts)
    for unit, nbytes in (("weight", 150), ("", 50), ("weight", 50)):
        meter.count_payload(unit, nbytes)
    meter.count_carried({1: 20, 2: 10}, {1: 40})
    return meter


def test_the_compression_ratio_is_dense_bytes_over_payload_bytes() -> None:
    assert counted().ratio == 4.0
    assert Meter().ratio == 1.0


def test_as_dict_has_all_numbers_for_a_logger() -> None:
    numbers = counted().as_dict()
    known = {field.name for field in fields(Meter)} - {"payload_by_unit", "sent", "received", "original_ranks"} | {
        "ratio"
    }
    assert set(numbers) == {f"thinwire/{name}" for name in known}
    assert numbers["thinwire/payload_bytes"] == 250
    assert numbers["thinwire/ratio"] == 4.0
    assert all(isinstance(value, int | float) for value in numbers.values())


def test_the_prefix_can_be_chosen() -> None:
    assert counted().as_dict(prefix="net.")["net.steps"] == 3


def test_a_loaded_meter_continues_to_count() -> None:
    meter, before = Meter(), counted()
    meter.load(before.as_dict(prefix=""), before.itemized())
    assert meter == counted()
    meter.count_payload("bias", 1)
    assert before == counted(), "what was loaded is a copy"


def test_a_message_counts_once_in_total_and_once_by_unit() -> None:
    assert counted().payload_by_unit == {"weight": 200, "": 50}
    assert counted().payload_bytes == 250


def test_the_counts_of_a_separate_meter_are_added() -> None:
    meter = counted()
    meter.add(counted())
    assert meter.as_dict(prefix="") == {k: 2 * v for k, v in counted().as_dict(prefix="").items()} | {"ratio": 4.0}
    assert meter.payload_by_unit == {"weight": 400, "": 100}
    assert (meter.sent, meter.received) == ({1: 40, 2: 20}, {1: 80})


def test_link_bytes_are_those_of_the_busier_direction() -> None:
    meter = counted()
    assert meter.link_bytes == 300
    meter.count_carried({1: 5}, {})
    assert (meter.sent, meter.received, meter.link_bytes) == ({1: 25, 2: 10}, {1: 40}, 305)


def test_loading_without_some_numbers_is_an_error_that_names_them() -> None:
    with pytest.raises(ValueError, match="rounds, skipped"):
        Meter().load({k: v for k, v in counted().as_dict(prefix="").items() if k not in ("rounds", "skipped")}, {})


@pytest.mark.parametrize(("ranks", "factor"), [(1, 0), (2, 1), (4, 1.5), (10, 1.8)])
def test_a_plain_all_reduce_carries_the_gradients_twice_but_for_one_shard(ranks: int, factor: float) -> None:
    meter = Meter()
    for _ in range(2):
        meter.count_dense(1000, ranks)
    assert meter.dense_bytes == 2000
    assert meter.dense_link_bytes == 2000 * factor


def test_a_new_meter_is_zero() -> None:
    assert not any(getattr(Meter(), field.name) for field in fields(Meter))
