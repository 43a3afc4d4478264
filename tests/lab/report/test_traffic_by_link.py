import pytest

from tests.lab.report.sample_runs import a_run, decentralized_run
from thinwire.lab.report import traffic_by_link as traffic
from thinwire.lab.report.summary import sections

ALL_OTHERS = {str(rank): 100_000 for rank in range(1, 12)}


def sentences_of(run):
    (section,) = sections([run])
    return traffic.sentences(section.entries[0])


@pytest.mark.parametrize(
    ("sent", "received", "expected"),
    [
        (
            {"1": 500_000, "3": 501_000},
            None,
            "rank 0 exchanges with ranks 1 and 3: 5.0 kB per step each in both directions.",
        ),
        ({"1": 500_000}, None, "rank 0 exchanges with rank 1: 5.0 kB per step in both directions."),
        (ALL_OTHERS, None, "rank 0 exchanges with 11 ranks: 1.0 kB per step each in both directions."),
        (
            {"1": 400_000, "2": 400_000, "4": 300_000},
            {"7": 400_000},
            "rank 0 sends to ranks 1, 2 and 4 (3.0 kB to 4.0 kB per step each) and receives from rank 7 "
            "(4.0 kB per step).",
        ),
        (
            {"1": 400_000},
            {"1": 200_000},
            "rank 0 sends to rank 1 (4.0 kB per step) and receives from rank 1 (2.0 kB per step).",
        ),
    ],
    ids=["both", "one", "many", "one way", "unequal"],
)
def test_the_busiest_rank_has_a_sentence(sent, received, expected):
    assert sentences_of(decentralized_run("sgp", traffic=(sent, received or sent))) == expected


def test_equal_replicas_and_runs_without_links_have_no_sentence():
    assert sentences_of(a_run(links={"rank": 0, "sent": {"1": 5}, "received": {"1": 5}})) == ""
    old = decentralized_run("dpsgd")
    old.links = {}
    assert sentences_of(old) == ""


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        (
            [[0, 1], [2, 3]],
            "Groups: ranks 0 and 1 and ranks 2 and 3. All ranks together send 8.0 kB per step within groups and 500 B "
            "between them.",
        ),
        ([[0, 1, 2, 3]], "All ranks are in one group and send 8.0 kB per step in total."),
        (
            [[rank, rank + 1] for rank in range(0, 12, 2)],
            "Groups: 6 groups of ranks. All ranks together send 8.0 kB per step within groups and 500 B between them.",
        ),
    ],
    ids=["two", "one", "many"],
)
def test_groups_have_a_sentence(groups, expected):
    run = decentralized_run("ab", traffic=({}, {}))
    run.groups = {"groups": groups, "within": 8_000 * run.steps, "between": 500 * run.steps}
    assert sentences_of(run) == expected
