"""The tables of results/ and the sentences that quote them display the figures of each study's figures.json.

results/README.md describes the format of figures.json.
"""

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from thinwire.lab.recording.runs import Run

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
STUDIES = sorted(folder.name for folder in RESULTS.iterdir() if folder.is_dir())
RUNS = sorted(RESULTS.glob("plateau/**/*.run.json"))
UNITS = {"%": "0.01", "kB": "1e3", "MB": "1e6", "GB": "1e9", "ms": "1e-3"}  # all other units count as 1
NUMBER = re.compile(r"(?<![\w.,-])(-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?)(?: ?(%|kB|MB|GB|ms)(?!\w))?")
MOST_BYTES, MOST_BYTES_OF_A_RUN = 4_000_000, 100_000

Cell = str | float | list[float] | None


def figures_of(study: str) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads((RESULTS / study / "figures.json").read_text())
    return figures


def numbers(text: str) -> list[tuple[str, str]]:
    """The numbers of a text with their units, without those in `code`."""
    return [(match[1], match[2] or "") for match in NUMBER.finditer(re.sub(r"`[^`]*`", "", text))]


def displays(number: str, unit: str, figure: float) -> bool:
    """Whether the figure, rounded to the displayed digits, is the displayed number."""
    shown, exact = Decimal(number.replace(",", "")), Decimal(repr(figure)) / Decimal(UNITS.get(unit, "1"))
    _, digits, place = shown.as_tuple()
    assert isinstance(place, int)
    if "." not in number and "e" not in number:  # zeros after the first three digits of 14,700 can be rounded
        while len(digits) > 3 and digits[-1] == 0:
            digits, place = digits[:-1], place + 1
    return abs(exact - shown) <= Decimal(1).scaleb(place) * Decimal("0.500001")


def mismatch(shown: str, cell: Cell) -> str | None:
    """What is wrong with a text that must display these figures, or None."""
    if isinstance(cell, str):
        return None if shown == cell else f"{shown!r} is not {cell!r}"
    expected = [] if cell is None else cell if isinstance(cell, list) else [cell]
    found = numbers(shown)
    if len(found) != len(expected):
        return f"{shown!r} has {len(found)} numbers instead of {len(expected)}: {expected}"
    wrong = [
        figure for (number, unit), figure in zip(found, expected, strict=True) if not displays(number, unit, figure)
    ]
    return f"{shown!r} does not display {wrong}" if wrong else None


def tables_in(text: str) -> list[list[list[str]]]:
    """All tables of a Markdown text: rows of cells, the first row is the header."""
    tables: list[list[list[str]]] = []
    inside = False
    for line in re.sub(r"```.*?```", "", text, flags=re.DOTALL).splitlines():
        if not line.startswith("|"):
            inside = False
            continue
        if not inside:
            tables.append([])
        inside = True
        cells = [cell.strip().replace("**", "") for cell in line.strip("|").split("|")]
        if not all(re.fullmatch(":?-+:?", cell) for cell in cells):
            tables[-1].append(cells)
    return tables


def mismatches_of_table(shown: list[list[str]], table: dict[str, Any]) -> list[str]:
    columns, rows = table["columns"], table["rows"]
    if shown[0] != columns or len(shown) - 1 != len(rows):
        return [f"header {shown[0]} with {len(shown) - 1} rows is not {columns} with {len(rows)} rows"]
    found = []
    for cells, expected in zip(shown[1:], rows, strict=True):
        for column, text, cell in zip(columns, cells, expected, strict=True):
            problem = mismatch(text, cell)
            if problem:
                found.append(f"row {cells[0]!r}, column {column!r}: {problem}")
    return found


def figure_of(reference: Any, study: str, figures: dict[str, Any]) -> float:
    """A figure of a quotation: a number, or a reference to a cell of a table in the study's README."""
    if not isinstance(reference, dict):
        return float(reference)
    table = figures["documents"][f"results/{study}/README.md"]["tables"][reference.get("table", 0)]
    (row,) = [row for row in table["rows"] if row[0] == reference["row"]]
    cell = row[table["columns"].index(reference["column"])]
    return float(cell[reference["part"]] if isinstance(cell, list) else cell)


def mismatches_of_document(text: str, document: dict[str, Any], study: str, figures: dict[str, Any]) -> list[str]:
    found = []
    shown = tables_in(text)
    for table in document.get("tables", []):
        index = next((i for i, candidate in enumerate(shown) if candidate[0] == table["columns"]), None)
        if index is None:
            found.append(f"no table has the header {table['columns']}")
        else:
            found += mismatches_of_table(shown.pop(index), table)
    if document.get("complete"):
        found += [f"the table with the header {table[0]} has no figures" for table in shown]
    flat = " ".join(text.split())
    for quote in document.get("quotes", []):
        if " ".join(quote["text"].split()) not in flat:
            found.append(f"{quote['text']!r} is not in the text")
            continue
        problem = mismatch(quote["text"], [figure_of(figure, study, figures) for figure in quote["figures"]])
        if problem:
            found.append(problem)
    return found


def documents() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("study", STUDIES)
def test_documents_display_the_figures_of_the_study(study: str) -> None:
    figures = figures_of(study)
    for path, document in figures["documents"].items():
        problems = mismatches_of_document((ROOT / path).read_text(), document, study, figures)
        assert not problems, f"{path}: " + "; ".join(problems)


@pytest.mark.parametrize("study", STUDIES)
def test_every_table_of_a_studys_readme_has_figures(study: str) -> None:
    assert figures_of(study)["documents"][f"results/{study}/README.md"]["complete"] is True


@pytest.mark.parametrize("study", STUDIES)
def test_a_study_has_a_command_and_a_picture(study: str) -> None:
    text = (RESULTS / study / "README.md").read_text()
    assert re.search(r"```sh\n.*?(thinwire queue|experiments/|make bench).*?```", text, re.DOTALL)
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+\.png)\)", text)
    assert pictures
    assert all((RESULTS / study / picture).exists() for picture in pictures)
    for named in re.findall(r"(?:experiments|results)/[\w./-]+\.(?:toml|sh|py)", text):
        assert (ROOT / named).exists(), named


def test_every_document_that_links_to_a_study_is_listed_in_its_figures() -> None:
    missing = [
        f"{path.relative_to(ROOT)} links to results/{study}"
        for path in documents()
        for study in sorted(set(re.findall(r"results/([\w-]+)/README\.md\)", path.read_text())))
        if str(path.relative_to(ROOT)) not in figures_of(study)["documents"]
    ]
    assert not missing


@pytest.mark.parametrize("path", RUNS, ids=lambda path: str(path.relative_to(RESULTS)))
def test_kept_runs_load_and_are_small(path: Path) -> None:
    assert Run.load(path).ranks == 4
    assert path.stat().st_size <= MOST_BYTES_OF_A_RUN


def test_there_are_kept_runs() -> None:
    assert RUNS


def test_results_are_small_enough_for_a_clone() -> None:
    assert sum(path.stat().st_size for path in RESULTS.rglob("*") if path.is_file()) <= MOST_BYTES


@pytest.mark.parametrize(
    ("shown", "cell"),
    [
        ("61.2 %", 0.61249),
        ("1,146 ms", 1.1457),
        ("14,700 %", 146.67),
        ("2.589 ± 0.004", [2.5891, 0.00438]),
        ("98.6 %, 83x / 554x, 12", [0.986, 83.1, 553.9, 12.2]),
        ("`AdaComp(50)`: 1.91e-3", 0.001912),
        ("not reached", None),
        ("dense", "dense"),
    ],
)
def test_a_cell_that_displays_its_figures_passes(shown: str, cell: Cell) -> None:
    assert mismatch(shown, cell) is None


@pytest.mark.parametrize(
    ("shown", "cell"),
    [
        ("61.2 %", 0.6126),  # rounds to 61.3
        ("61.2", 0.612),  # the unit is missing
        ("1,146 ms", 1.147),
        ("14,700 %", 146.4),
        ("98.6 %, 83x", [0.986]),
        ("not reached", 0.5),
        ("12", None),
        ("fp16", "dense"),
    ],
)
def test_a_cell_that_displays_other_figures_fails(shown: str, cell: Cell) -> None:
    assert mismatch(shown, cell) is not None


def test_a_changed_header_row_or_quotation_fails() -> None:
    table = {"columns": ["method", "accuracy"], "rows": [["dense", 0.61]]}
    figures = {"documents": {"results/one/README.md": {"tables": [table]}}}
    quote = {"text": "dense reaches 61 %", "figures": [{"row": "dense", "column": "accuracy"}]}
    document = {"tables": [table], "quotes": [quote], "complete": True}
    good = "| method | accuracy |\n|---|---|\n| dense | 61 % |\n\nHere dense reaches\n61 % of all.\n"

    def problems(text: str) -> list[str]:
        return mismatches_of_document(text, document, "one", figures)

    assert problems(good) == []
    assert len(problems(good.replace("| accuracy", "| loss"))) == 2  # the table is missing, and another has no figures
    assert len(problems(good.replace("| 61 %", "| 62 %"))) == 1
    assert len(problems(good.replace("| dense |", "| fp16 |"))) == 1
    assert len(problems(good.replace("61 % of", "62 % of"))) == 1
    assert len(problems(good + "\n| a |\n|---|\n| 1 |\n")) == 1
    assert len(mismatches_of_table(tables_in(good)[0], {**table, "rows": [["dense", 0.62]]})) == 1
    table["rows"] = [["dense", 0.62]]
    assert len(problems(good)) == 2  # the cell and the quotation of it
