"""Checks by the import statements that each layer imports only the layers that the table allows, without cycles."""

import ast
import importlib
import inspect
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import thinwire
from thinwire import extend

ROOT = Path(thinwire.__file__).parent


class Layer(NamedTuple):
    description: str
    below: tuple[str, ...] = ()  # the layers that it may import


# From the bottom up. A new dependency is a design decision. `python -m tests.test_layers` updates docs/design.md.
LAYERS: dict[str, Layer] = {
    "version": Layer("the version of the package"),
    "core": Layer("the protocols, lazy tensors, error bounds, states, notation of objects"),
    "distributions": Layer(
        "the generalized normal distribution of gradients, fits of it, the best scale for few levels"
    ),
    "topologies": Layer("which ranks exchange messages: all, graphs, groups", ("core",)),
    "kernels": Layer("loops over many elements, compiled where it pays, each with a plain torch twin", ("core",)),
    "wire": Layer("tensors to bytes and back", ("core", "kernels")),
    "entropy": Layer("lossless coding of symbols: models, coders, blocks", ("core", "kernels", "wire")),
    "codecs": Layer("one codec a file", ("core", "distributions", "kernels", "entropy")),
    "transports": Layer("sends, receives and counts; the only layer that knows `torch.distributed`", ("core", "wire")),
    "reducers": Layer("one reducer a file", ("core", "kernels", "entropy", "codecs")),
    "strategies": Layer(
        "what replicas exchange around an optimizer step; AB-training with its layers in a folder",
        ("core", "topologies", "kernels", "codecs", "reducers"),
    ),
    "notation": Layer("text to objects", ("core", "topologies", "entropy", "codecs", "reducers", "strategies")),
    "short_names": Layer("the short names, listed without torch and parsed on first use", ("core", "notation")),
    "methods": Layer(
        "from a method to its strategy, and its other forms",
        ("core", "reducers", "strategies", "notation", "short_names"),
    ),
    "runtime": Layer(
        "attached methods: session, DDP and optimizer hooks, failed ranks, agreement, NaN, checkpoints, averages",
        ("version", "core", "transports", "reducers", "strategies", "methods"),
    ),
    "handle": Layer("what `attach` returns", ("core", "transports", "strategies", "methods", "runtime")),
    "attach": Layer(
        "the one line that users add",
        ("core", "transports", "reducers", "strategies", "methods", "runtime", "handle"),
    ),
    "replicator": Layer(
        "one replica's step, run on one process or many",
        (
            "core",
            "wire",
            "codecs",
            "transports",
            "strategies",
            "methods",
            "runtime",
            "handle",
            "attach",
        ),
    ),
    "extend": Layer(
        "public names: to write a codec, reducer, strategy or topology",
        ("core", "topologies", "entropy", "transports", "reducers", "strategies"),
    ),
    "simulate": Layer("public names: to run many ranks in one process", ("transports", "runtime")),
    "inspect": Layer(
        "public names: to look into a method or a training",
        ("core", "distributions", "wire", "transports", "reducers", "strategies", "attach"),
    ),
    "__init__": Layer(
        "public names: to use methods; the notation reads all of them",
        (
            "version",
            "core",
            "topologies",
            "entropy",
            "codecs",
            "transports",
            "reducers",
            "strategies",
            "notation",
            "methods",
            "runtime",
            "handle",
            "attach",
            "replicator",
            "extend",
            "simulate",
            "inspect",
        ),
    ),
    "lab": Layer(
        "tasks, links, runs, reports, sizes, the demo; it uses public names only",
        ("__init__", "extend", "simulate", "inspect"),
    ),
    "cli": Layer("arguments in, tables or JSON out", ("version", "short_names", "lab")),
    "__main__": Layer("`python -m thinwire`", ("cli",)),
}
DESIGN = Path(__file__).parents[1] / "docs" / "design.md"
PROTOCOLS = (
    "codec",
    "described",
    "factoring",
    "messages",
    "outcome",
    "reducer",
    "replica",
    "routes",
    "strategy",
)  # in core
TIERS = ("extend", "simulate", "inspect")  # modules of public names, in addition to thinwire itself
STARTS_PROCESSES = ("lab", "cli")  # so these may import torch.distributed, as transports do


class Import(NamedTuple):
    module: str  # dotted, absolute
    name: str | None  # what is imported from it
    line: int


@cache
def sources() -> dict[str, ast.Module]:
    """The syntax tree of every module, by dotted name within the package; a package's own file ends in __init__."""
    trees = {}
    for path in sorted(ROOT.rglob("*.py")):
        dotted = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        trees[dotted] = ast.parse(path.read_text(), filename=str(path))
    return trees


def layer_of(dotted: str) -> str:
    return dotted.split(".")[0]


def imports(dotted: str) -> Iterator[Import]:
    """All import statements, including those in functions, with relative names made absolute."""
    package = ["thinwire", *dotted.split(".")[:-1]]
    for node in ast.walk(sources()[dotted]):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, None, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield Import(module, alias.name, node.lineno)


def modules_imported(dotted: str) -> Iterator[tuple[str, Import]]:
    """The modules of the package that a module imports, by their dotted names."""
    for statement in imports(dotted):
        if statement.module.split(".")[0] != "thinwire":
            continue
        inside = statement.module.split(".")[1:]
        deeper = ".".join([*inside, statement.name or ""])
        candidates = [deeper, f"{deeper}.__init__", ".".join(inside), ".".join([*inside, "__init__"])]
        yield next(name for name in candidates if name in sources()), statement


def test_every_module_belongs_to_a_layer() -> None:
    assert {layer_of(module) for module in sources()} == set(LAYERS)


def table() -> str:
    """The layers as a Markdown table."""
    rows = [
        f"| `{name}` | {layer.description} | {', '.join(f'`{b}`' for b in layer.below)} |"
        for name, layer in LAYERS.items()
    ]
    return "\n".join(["| layer | what it is | imports |", "|---|---|---|", *rows])


def with_table(page: str) -> str:
    """The page with the table between its two marks."""
    before, rest = page.split("<!-- layers: -->\n")
    _, after = rest.split("<!-- :layers -->")
    return f"{before}<!-- layers: -->\n{table()}\n<!-- :layers -->{after}"


def test_the_layer_table_in_the_design_page_is_up_to_date() -> None:
    page = DESIGN.read_text("utf-8")
    assert with_table(page) == page, "run python -m tests.test_layers"


def test_layers_are_listed_from_the_bottom_up() -> None:
    known: set[str] = set()
    for layer, (_, below) in LAYERS.items():
        assert {*below} <= known, f"{layer} may import {sorted(set(below) - known)}, which is not below it"
        known.add(layer)


def test_modules_import_only_their_own_layer_and_allowed_layers() -> None:
    for module in sources():
        allowed = {layer_of(module), *LAYERS[layer_of(module)].below}
        for imported, statement in modules_imported(module):
            assert layer_of(imported) in allowed, f"{module}:{statement.line} imports {imported}"


def test_every_allowed_dependency_is_used() -> None:
    # An unused permission would let an unintended import pass unnoticed.
    used: dict[str, set[str]] = {layer: set() for layer in LAYERS}
    for module in sources():
        used[layer_of(module)] |= {layer_of(name) for name, _ in modules_imported(module)} - {layer_of(module)}
    assert {name: layer.below for name, layer in LAYERS.items() if {*layer.below} - used[name]} == {}


MAY_CHECK_CONCRETE_TYPES = ("strategies", "reducers", "methods", "notation")


def types_checked(dotted: str) -> Iterator[tuple[int, object]]:
    """The classes that a module tests for with `isinstance`, `issubclass` or `case`."""
    names = vars(importlib.import_module(f"thinwire.{dotted}".removesuffix(".__init__")))
    for node in ast.walk(sources()[dotted]):
        classes: ast.expr
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass"):
            classes = node.args[1]
        elif isinstance(node, ast.MatchClass):
            classes = node.cls
        else:
            continue
        try:
            found = eval(compile(ast.Expression(classes), dotted, "eval"), dict(names))
        except NameError:  # a local name
            continue
        for kind in found if isinstance(found, tuple) else getattr(found, "__args__", (found,)):
            yield classes.lineno, kind


def test_only_their_own_layers_check_for_concrete_strategies_or_reducers() -> None:
    # All other layers use the protocols. Abstract classes count as protocols.
    found = []
    for module in sources():
        if layer_of(module) in (*MAY_CHECK_CONCRETE_TYPES, "__main__"):
            continue
        for line, kind in types_checked(module):
            method = isinstance(kind, type) and issubclass(kind, extend.Strategy | extend.Reducer)
            if method and not inspect.isabstract(kind):
                found.append(f"{module}:{line} {kind.__name__}")
    assert found == []


def test_no_import_cycles_between_modules() -> None:
    # Also within a layer. A package's __init__ may import its modules; they may not import it.
    graph = {module: {name for name, _ in modules_imported(module)} for module in sources()}
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, f"import cycle: {' -> '.join([*path[path.index(module) :], module])}"
        if module not in done:
            for below in sorted(graph[module]):
                visit(below, (*path, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def test_the_protocols_import_only_tensor_from_torch() -> None:
    foreign = {
        (statement.module, statement.name)
        for name in PROTOCOLS
        for statement in imports(f"core.{name}")
        if is_foreign(statement.module)
    }
    assert foreign == {("torch", "Tensor")}


def is_foreign(module: str) -> bool:
    return module.split(".")[0] not in {*sys.stdlib_module_names, "thinwire"}


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_protocol_module_has_at_most_235_lines(name: str) -> None:
    assert len((ROOT / "core" / f"{name}.py").read_text().splitlines()) <= 235


def attributes(dotted: str) -> Iterator[tuple[str, str, int]]:
    """Every `name.attribute` in a module: name, attribute and line."""
    for node in ast.walk(sources()[dotted]):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield node.value.id, node.attr, node.lineno


def test_module_names_are_unique() -> None:
    # Except a compiled loop and its torch twin, which are looked up by their common name.
    paths: dict[str, list[str]] = {}
    for module in sources():
        package, _, name = module.rpartition(".")
        if not name.startswith("__") and package != "kernels.loops":
            paths.setdefault(name, []).append(module)
    assert {name: modules for name, modules in paths.items() if len(modules) > 1} == {}


def test_only_transports_import_torch_distributed() -> None:
    for module in (m for m in sources() if layer_of(m) not in ("transports", *STARTS_PROCESSES)):
        for statement in imports(module):
            full = f"{statement.module}.{statement.name}" if statement.name else statement.module
            assert not f"{full}.".startswith("torch.distributed."), f"{module}:{statement.line}"
        for name, attribute, line in attributes(module):
            assert (name, attribute) != ("torch", "distributed"), f"{module}:{line}"


def test_the_lab_uses_public_names_only() -> None:
    tiers = {tier: {*importlib.import_module(f"thinwire.{tier}").__all__} for tier in TIERS}
    public = {"thinwire": {*thinwire.__all__, "lab"}} | tiers
    for module in (m for m in sources() if layer_of(m) == "lab"):
        for statement in imports(module):
            top, *inside = statement.module.split(".")
            if top != "thinwire" or inside[:1] == ["lab"]:
                continue
            tier = inside[0] if inside else "thinwire"
            assert len(inside) < 2, f"{module}:{statement.line} imports {statement.module}"
            assert tier in public, f"{module}:{statement.line} imports thinwire.{tier}"
            assert statement.name is None or statement.name in public[tier], f"{module}:{statement.line}"
        for name, attribute, line in attributes(module):
            assert name not in public or attribute in public[name], f"{module}:{line} uses {name}.{attribute}"


def test_no_module_unpickles_or_evaluates_code() -> None:
    unpicklers = {"pickle", "marshal", "shelve", "dill"}
    for module, tree in sources().items():
        assert not {statement.module.split(".")[0] for statement in imports(module)} & unpicklers, module
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec", "compile", "__import__"), f"{module}:{node.lineno}"
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
                safe = any(k.arg == "weights_only" and ast.unparse(k.value) == "True" for k in node.keywords)
                assert safe, f"{module}:{node.lineno} unpickles"


def test_lazy_names_match_the_imports_for_type_checkers() -> None:
    (guarded,) = (node for node in sources()["__init__"].body if isinstance(node, ast.If))
    seen = {
        node.module: tuple(alias.name for alias in node.names)
        for node in guarded.body
        if isinstance(node, ast.ImportFrom) and node.module
    }
    assert seen == thinwire._NAMES
    assert {*thinwire.__all__} == {*thinwire._MODULE_OF, "__version__", *TIERS}
    assert {*thinwire.__all__} <= {*dir(thinwire)}


@pytest.mark.processes
@pytest.mark.parametrize(
    "first", ["import thinwire.attach", "import thinwire.replicator", "from thinwire import attach"]
)
def test_attach_is_a_function_after_any_first_import(first: str) -> None:
    script = f"{first}; import thinwire; assert callable(thinwire.attach); assert thinwire.attach.__name__ == 'attach'"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_public_names_are_unique_and_exist() -> None:
    assert len(set(thinwire.__all__)) == len(thinwire.__all__)
    assert all(hasattr(thinwire, name) for name in thinwire.__all__)


if __name__ == "__main__":
    DESIGN.write_text(with_table(DESIGN.read_text("utf-8")), "utf-8")
