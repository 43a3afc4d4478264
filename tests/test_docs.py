"""The codec and the reducer that docs/attach.md shows work as written; pages about the code name files that exist."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import thinwire
from thinwire.extend import Codec, Reducer
from thinwire.wire import payload

PAGE = Path(__file__).parents[1] / "docs" / "attach.md"


def block(after: str) -> str:
    """The first Python block of a section, up to the part that uses the model of an earlier block."""
    text = PAGE.read_text().split(f"## {after}\n")[1]
    found = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert found
    return found[1].split("handle.detach()")[0]


def test_the_documented_codec_and_reducer_can_be_executed() -> None:
    names: dict[str, Any] = {"torch": torch, "thinwire": thinwire, "__name__": "example"}
    for section in ("A codec of your own", "A reducer of your own"):
        exec(compile(block(section), str(PAGE), "exec"), names)
    codec = names["Steps"](0.5)
    assert isinstance(codec, Codec)
    x = torch.tensor([1.0, -2.5, 0.2])
    assert payload.decode(payload.encode(x, codec, 0), codec, 0, x).tolist() == [1.0, -2.5, 0.0]
    assert any(isinstance(x, type) and issubclass(x, Reducer) and x is not Reducer for x in names.values())


@pytest.mark.parametrize("page", ["design", "decisions", "glossary", "life_of_a_gradient"])
def test_files_that_a_page_names_exist(page: str) -> None:
    named = re.findall(r"`((?:\w+/)+\w+\.py)`", PAGE.with_stem(page).read_text("utf-8"))
    roots = [Path(thinwire.__file__).parent, PAGE.parents[1]]
    assert named
    assert [name for name in named if not any((root / name).exists() for root in roots)] == []
