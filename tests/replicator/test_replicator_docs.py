"""The diffs in docs/replicator.md: the scripts before and after run, and the line counts are right."""

import re
from pathlib import Path

import pytest

import thinwire

PAGE = (Path(__file__).parents[2] / "docs" / "replicator.md").read_text()


def sides(name: str) -> tuple[str, str]:
    """A documented script before and after the change."""
    (diff,) = re.findall(rf"<!-- {name} -->\n```diff\n(.*?)```", PAGE, re.DOTALL)
    lines = diff.splitlines()
    before = [line[1:] for line in lines if not line.startswith("+")]
    return "\n".join(before), "\n".join(line[1:] for line in lines if not line.startswith("-"))


@pytest.mark.parametrize("name", ["plain", "accelerate"])
def test_the_changed_script_runs_as_two_replicas(name, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(sides(name)[1] + "\nassert losses[-1] < losses[0]\n")
    thinwire.run_script(script, 2)


def test_the_original_script_runs(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(sides("plain")[0] + "\nassert losses[-1] < losses[0]\n")
    thinwire.run_script(script)


def test_the_stated_numbers_of_changed_lines_are_right():
    before, after = (text.splitlines() for text in sides("plain"))
    assert len(after) - len(before) == 3
    assert sum(line not in before for line in after) == 7
    assert "Three lines are new, and four are changed." in PAGE
    (diff,) = re.findall(r"<!-- accelerate -->\n```diff\n(.*?)```", PAGE, re.DOTALL)
    assert [sum(line.startswith(sign) for line in diff.splitlines()) for sign in "+-"] == [12, 6]
    assert "Twelve lines are new and six are gone" in PAGE
