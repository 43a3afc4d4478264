import pytest

from tests.lab.report.sample_runs import a_run, differing
from thinwire.lab.report import traffic_by_link as ways
from thinwire.lab.report.summary import sections

EVERYONE = {str(rank): 100_000 for rank in range(1, 12)}


def told(run):
    (section,) = sections([run])
    return ways.told(section.entries[0])


@pytest.mark.parametrize(
    ("sent", "received", "said"),
    [
        (
            {"1": 500_000, "3": 501_000},
            None,
            "rank 0 speaks with ranks 1 and 3: 5.0 kB a step to each, as much from each.",
        ),
        ({"1": 500_000}, None, "rank 0 speaks with rank 1: 5.0 kB a step there, as much back."),
        (EVERYONE, None, "rank 0 speaks with 11 ranks: 1.0 kB a step to each, as much from each."),
        (
            {"1": 400_000, "2": 400_000, "4": 300_000},
            {"7": 400_000},
            "rank 0 speaks to ranks 1, 2 and 4 (3.0 kB to 4.0 kB a step each) and hears rank 7 (4.0 kB a step).",
        ),
        (
            {"1": 400_000},
            {"1": 200_000},
            "rank 0 speaks to rank 1 (4.0 kB a step) and hears rank 1 (2.0 kB a step).",
        ),
    ],
    ids=["both", "one", "many", "one way", "unequal"],
)
def test_links_are_told_in_a_sentence(sent, received, said):
    assert told(differing("sgp", ways=(sent, received or sent))) == said


def test_nothing_is_said_of_those_who_speak_with_all_or_did_not_tell():
    assert told(a_run(links={"rank": 0, "sent": {"1": 5}, "received": {"1": 5}})) == ""
    old = differing("dpsgd")
    old.links = {}
    assert told(old) == ""


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        (
            [[0, 1], [2, 3]],
            "In groups, ranks 0 and 1 and ranks 2 and 3: 8.0 kB a step within groups and 500 B between them, of all "
            "ranks together.",
        ),
        ([[0, 1, 2, 3]], "All ranks are in one group: 8.0 kB a step, of all together."),
        (
            [[rank, rank + 1] for rank in range(0, 12, 2)],
            "In groups, 6 groups of ranks: 8.0 kB a step within groups and 500 B between them, of all ranks together.",
        ),
    ],
    ids=["two", "one", "many"],
)
def test_groups_are_told_in_a_sentence(groups, said):
    run = differing("ab", ways=({}, {}))
    run.groups = {"groups": groups, "within": 8_000 * run.steps, "between": 500 * run.steps}
    assert told(run) == said
