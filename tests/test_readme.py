"""The README tells the truth about what a newcomer can type."""

import re
from pathlib import Path

import pytest

from thinwire.methods import METHODS, strategy_of

README = (Path(__file__).parent.parent / "README.md").read_text()


@pytest.mark.parametrize("method", METHODS.values(), ids=list(METHODS))
def test_the_table_has_every_short_name_and_its_use(method):
    assert f"| `{method.name}` | {method.use} |" in README


def test_notations_can_be_read():
    notations = re.findall(r'attach\(model, "([^"]+)"\)', README)
    assert len(notations) >= 2
    assert all(strategy_of(notation) for notation in notations)


def test_links_lead_somewhere():
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert links
    missing = [link for link in links if not (Path(__file__).parent.parent / link).exists()]
    assert not missing
