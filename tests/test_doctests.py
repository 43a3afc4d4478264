"""The examples in the docstrings of public names run, and print what they show."""

import doctest
import importlib
from collections.abc import Iterator

import pytest
import torch

from .test_public_names import DEFINITIONS

FEWEST = 20  # examples, or the reference has lost some


def examples() -> Iterator[doctest.DocTest]:
    """The docstrings with examples in the modules that define public names. An example imports what it uses."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    for module in sorted({definition.module for definition in DEFINITIONS.values()}):
        yield from (found for found in finder.find(importlib.import_module(module), module, globs={}) if found.examples)


EXAMPLES = list(examples())


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= FEWEST


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_prints_what_it_shows(example: doctest.DocTest) -> None:
    report: list[str] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=report.append)
    assert not report, "".join(report)
