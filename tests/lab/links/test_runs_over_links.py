"""Runs by real ranks over rate-limited links."""

from dataclasses import replace

import pytest

from tests.lab.runner.test_processes import events_from, results_of, runs_in
from thinwire.lab.runner import simulation
from thinwire.lab.runner.plan import Plan

pytestmark = pytest.mark.usefixtures("possible")


def test_the_interface_counts_the_link_bytes_and_headers():
    # Messages that are large compared with headers, and small enough for the rate of the link.
    tasks = [Plan("digits-cnn", method, ranks=2, steps=8, link="100mbit") for method in ("dense", "fp16", "powersgd")]
    runs = runs_in(events_from(*tasks))
    simulated = runs_in(events_from(*(replace(t, link=None, transport="simulated") for t in tasks), by=simulation))
    assert [results_of(run) for run in runs] == [results_of(run) for run in simulated]
    for run in runs:
        # TCP, IP and Ethernet take 66 bytes of every 1514; gloo sends a request and a reply per message.
        messages = 4 * run.steps * 4
        least, most = run.bytes["link"], run.bytes["link"] * 1514 / 1448 * 1.03 + messages * 300 + 10_000
        assert least < run.bytes["wire"] < most
        assert run.link == "100mbit"
        assert not run.modeled
    # The rate is limited: the run takes at least the time of its bytes.
    dense = runs[0]
    assert dense.seconds["total"] > dense.bytes["link"] * 8 / 100e6


def test_the_middle_of_a_star_carries_more_than_one_link():
    bits = 10e6
    (run,) = runs_in(
        events_from(Plan("digits-cnn", "server:dense", ranks=3, steps=2, evaluations=1, link="star:10mbit"))
    )
    server, worker = (run.server[name] * 8 / bits for name in ("link", "worker"))
    assert server == 2 * worker > 2
    assert worker < run.seconds["total"] < 0.9 * server, "the links of the workers are used in parallel"
