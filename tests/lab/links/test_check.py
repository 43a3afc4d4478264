import json

import pytest
from rich.console import Console

from thinwire.lab import links
from thinwire.lab.links.check import Way


def printed(checked):
    console = Console(width=100)
    with console.capture() as captured:
        console.print(checked.shown())
    return captured.get()


@pytest.mark.usefixtures("possible")
def test_a_link_reaches_its_nominal_rate_in_both_directions():
    link = links.Link.parse("15mbit/10mbit")
    # A busy machine carries less, never more, so the best of several measurements counts.
    measured = [links.check(link, seconds=1.0)]
    while not measured[-1].holds and len(measured) < 5:
        measured.append(links.check(link, seconds=1.0))
    assert all(way.share < 1.03 for found in measured for way in found.ways.values())
    checked = measured[-1]
    assert checked.peers == 2, "one peer could not fill 15mbit with its 10mbit"
    assert checked.holds
    down, up = checked.ways["down"], checked.ways["up"]
    assert (down.nominal, up.nominal) == (link.down, link.up)
    for way in (down, up):
        assert way.share > 0.95
        assert 0.045 < way.overhead < 0.08, "66 bytes of headers per 1448 of payload, and some retransmissions"
        assert way.payload < way.wire
    assert 0 < checked.round_trip_seconds < 0.05
    assert json.loads(json.dumps(checked.as_dict()))["ways"]["down"]["wire"] == down.wire
    assert "15 Mbit/s" in printed(checked)


@pytest.mark.parametrize(("carried", "too_slow"), [(0.99e9, False), (0.7e9, True)])
def test_a_machine_below_the_required_share_is_reported_as_too_slow(carried, too_slow):
    way = Way(nominal=1e9, wire=carried, overhead=0.05)
    ways = dict.fromkeys(("down", "up"), way)
    checked = links.Checked(links.Link.parse("1gbit"), 1.0, peers=1, round_trip_seconds=1e-4, ways=ways)
    assert checked.holds is not too_slow
    assert ("too slow" in printed(checked)) is too_slow


def test_a_link_that_cannot_be_created_is_an_error_with_advice(monkeypatch, tmp_path):
    (tmp_path / "pyroute2.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(links.LinkError, match="pip install 'thinwire"):
        links.check(links.Link.parse("100mbit"), seconds=1.0)
