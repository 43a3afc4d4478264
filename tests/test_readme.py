"""The README lists the methods that exist, with valid notations and links."""

import re
from pathlib import Path

import pytest

from thinwire.methods import METHODS, strategy_of

README = (Path(__file__).parent.parent / "README.md").read_text()


@pytest.mark.parametrize("method", METHODS.values(), ids=list(METHODS))
def test_the_table_lists_every_short_name_with_its_description(method):
    assert f"| `{method.name}` | {method.use} |" in README


def test_every_notation_in_the_readme_can_be_parsed():
    notations = re.findall(r'attach\(model, "([^"]+)"\)', README)
    assert len(notations) >= 2
    assert all(strategy_of(notation) for notation in notations)


def test_every_relative_link_points_to_an_existing_file():
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert links
    missing = [link for link in links if not (Path(__file__).parent.parent / link).exists()]
    assert not missing
