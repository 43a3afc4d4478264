"""Runs by real ranks that are joined by a link that is really thin."""

from dataclasses import replace

import pytest

from tests.lab.runner.test_processes import heard_from, runs_in, what_came_out
from thinwire.lab.runner import simulation
from thinwire.lab.runner.plan import Plan

pytestmark = pytest.mark.usefixtures("possible")


def test_what_the_interface_counts_is_what_the_method_put_on_the_link_and_headers():
    # Large enough messages that headers are few, and small enough for a link that is thin.
    tasks = [Plan("digits-cnn", method, ranks=2, steps=8, link="100mbit") for method in ("dense", "fp16", "powersgd")]
    runs = runs_in(heard_from(*tasks))
    simulated = runs_in(heard_from(*(replace(t, link=None, transport="simulated") for t in tasks), by=simulation))
    assert [what_came_out(run) for run in runs] == [what_came_out(run) for run in simulated]
    for run in runs:
        # TCP, IP and Ethernet take 66 bytes of every 1514; gloo asks and answers for every message.
        messages = 4 * run.steps * 4
        least, most = run.bytes["link"], run.bytes["link"] * 1514 / 1448 * 1.03 + messages * 300 + 10_000
        assert least < run.bytes["wire"] < most
        assert run.link == "100mbit"
        assert not run.modeled
    # A thin link is really thin: no step is faster than its bytes take.
    dense = runs[0]
    assert dense.seconds["total"] > dense.bytes["link"] * 8 / 100e6


def test_in_a_star_the_one_in_the_middle_carries_more_than_a_link_does():
    bits = 10e6
    (run,) = runs_in(
        heard_from(Plan("digits-cnn", "server:dense", ranks=3, steps=2, evaluations=1, link="star:10mbit"))
    )
    server, worker = (run.server[name] * 8 / bits for name in ("link", "worker"))
    assert server == 2 * worker > 2
    assert worker < run.seconds["total"] < 0.9 * server, "each worker's link takes its time, side by side"
