"""The codec and the reducer that docs/attach.md shows work as written."""

import re
from pathlib import Path
from typing import Any

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
