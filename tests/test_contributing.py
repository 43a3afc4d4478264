"""The worked example of CONTRIBUTING.md runs, and its codec keeps the contract of all codecs."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from thinwire.extend import Codec

from .contracts import table
from .contracts import test_codec_contract as contract

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"
BLOCKS = 3
FEWEST = 10  # contract tests, or this one looks for them in the wrong way


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """The names that the code blocks of the page define, executed in order."""
    found: dict[str, Any] = {"__name__": "contributing"}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert len(blocks) == BLOCKS
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), found)
    return found


def checks() -> list[str]:
    """The contract tests of all codecs, of all linear ones, and of all with a fixed layout."""
    fitting: tuple[list[Codec], ...] = (
        [*table.CODECS],
        [codec for codec in table.CODECS if codec.linear],
        [codec for codec in table.CODECS if not codec.variable],
    )
    return [
        name
        for name, test in vars(contract).items()
        if name.startswith("test_") and [*inspect.signature(test).parameters] == ["codec"]
        if any([*mark.args[1]] in fitting for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize")
    ]


def test_the_example_checks_its_setting(names: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="BlockMean takes blocks of 1 entry or more, not 0"):
        names["BlockMean"](0)


def test_there_are_contract_tests() -> None:
    assert len(checks()) >= FEWEST


@pytest.mark.parametrize("check", checks())
def test_the_codec_of_the_example_keeps_the_contract(names: dict[str, Any], check: str) -> None:
    added = names["CODECS"][len(table.CODECS) :]
    assert added
    for codec in added:
        getattr(contract, check)(codec)
