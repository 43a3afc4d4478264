"""Every public name has an entry in the API pages and a description of its own."""

import ast
import importlib
import importlib.util
import io
import re
import tokenize
from collections import Counter
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

DOCS = Path(__file__).parents[1] / "docs"
TIERS = ("thinwire", "thinwire.extend", "thinwire.simulate", "thinwire.inspect")


class Definition(NamedTuple):
    """Where a public name is defined."""

    module: str
    node: ast.stmt | None  # None: the name is a module

    @property
    def described(self) -> bool:
        """Whether a module, class or function has a docstring, or the line of a constant a comment on it or above."""
        if self.node is None:
            return ast.get_docstring(tree_of(self.module)) is not None
        if isinstance(self.node, ast.ClassDef | ast.FunctionDef):
            return ast.get_docstring(self.node) is not None
        lines = {self.node.lineno - 1, *range(self.node.lineno, (self.node.end_lineno or self.node.lineno) + 1)}
        return any(comments_of(self.module).get(line) for line in lines)


@cache
def source_of(module: str) -> str:
    file = importlib.import_module(module).__file__
    assert file is not None
    return Path(file).read_text("utf-8")


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(source_of(module))


@cache
def comments_of(module: str) -> dict[int, str]:
    """The comments of a module by line, without those for linters."""
    tokens = tokenize.generate_tokens(io.StringIO(source_of(module)).readline)
    comments = {t.start[0]: t.string.lstrip("# ") for t in tokens if t.type == tokenize.COMMENT}
    return {line: text for line, text in comments.items() if not text.startswith(("type:", "noqa"))}


def definition_of(module: str, name: str) -> Definition:
    """The statement that defines a name of a module. Follows imports within the package."""
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ImportFrom) and node.level:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    package = module if is_package(module) else module.rpartition(".")[0]
                    base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
                    if isinstance(getattr(importlib.import_module(module), name), ModuleType):
                        return Definition(f"{base}.{alias.name}".replace("..", "."), None)
                    return definition_of(base, alias.name)
    for node in tree_of(module).body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        names = {getattr(target, "id", "") for target in targets} | {getattr(node, "name", "")}
        if name in names:
            return Definition(module, node)
    raise AssertionError(f"{module} has no {name}")


def is_package(module: str) -> bool:
    return hasattr(importlib.import_module(module), "__path__")


def public_names() -> list[tuple[str, str]]:
    return [(tier, name) for tier in TIERS for name in importlib.import_module(tier).__all__]


DEFINITIONS = {(tier, name): definition_of(tier, name) for tier, name in public_names()}


def page_of(tier: str) -> str:
    return (DOCS / "api" / f"{tier.rpartition('.')[2]}.md").read_text("utf-8")


def entries(tier: str) -> list[str]:
    """The public names that the page of a tier has directives for, by the names that links use."""
    # Where a module has the same name as what it defines, an anchor gives the public name, and the directive the full.
    anchored = re.findall(r"^\[\]\(\)\{#([\w.]+)\}\n\n::: thinwire[\w.]*\.(\w+)$", page_of(tier), re.MULTILINE)
    assert all(anchor.rpartition(".")[2] == name for anchor, name in anchored)
    directives = re.findall(r"^::: ([\w.]+)$", page_of(tier), re.MULTILINE)
    found = [anchor for anchor, _ in anchored] + directives
    return [name for path in found if (name := path.removeprefix(f"{tier}.")) and "." not in name]


@pytest.mark.parametrize(("tier", "name"), public_names())
def test_a_public_name_is_described(tier: str, name: str) -> None:
    definition = DEFINITIONS[tier, name]
    assert definition.described, f"{definition.module}: {name} needs a docstring, or a comment if it is a constant"


@pytest.mark.parametrize("tier", TIERS)
def test_the_page_of_a_tier_has_an_entry_for_each_of_its_names_and_for_no_other(tier: str) -> None:
    module = importlib.import_module(tier)
    modules = {name for name in module.__all__ if DEFINITIONS[tier, name].node is None}
    counted = Counter(name for name in entries(tier) if name != tier)
    assert {name: n for name, n in counted.items() if n > 1} == {}
    assert set(counted) == {*module.__all__} - modules
    assert all(f"::: thinwire.{name}\n" in page_of(f"thinwire.{name}") for name in modules)
