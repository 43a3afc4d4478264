"""Tiny Shakespeare (Karpathy, 2015): 1,115,394 characters, 65 of them distinct."""

from pathlib import Path

import numpy as np

from thinwire.lab.tasks.datasets.files import Array, missing
from thinwire.lab.tasks.datasets.text import Text

CHARACTERS = "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
LENGTH = 1_115_394
TRAINING = int(0.9 * LENGTH)  # characters; the rest is the test split
PATHS = ("tinyshakespeare.txt", "tinyshakespeare/input.txt", "input.txt")


def load(folder: Path | None, window: int) -> tuple[Text, Text]:
    """The first 90 % for training and the last 10 % for testing, in windows of `window` characters."""
    numbers = read(found(folder))
    return Text(numbers[:TRAINING], window), Text(numbers[TRAINING:], window)


def found(folder: Path | None) -> Path:
    for path in PATHS:
        if folder and (folder / path).is_file():
            return folder / path
    raise missing(
        "Tiny Shakespeare",
        folder,
        PATHS,
        "It is the file data/tinyshakespeare/input.txt of the GitHub repository karpathy/char-rnn",
    )


def read(path: Path) -> Array:
    """The number of each character: its index in the alphabet of this text."""
    text = np.fromfile(path, np.uint8)
    if len(text) != LENGTH:
        raise ValueError(
            f"{path} has {len(text):,} bytes, but Tiny Shakespeare has {LENGTH:,}: it is truncated, or another text"
        )
    numbers = np.full(256, len(CHARACTERS), np.uint8)
    numbers[np.frombuffer(CHARACTERS.encode(), np.uint8)] = np.arange(len(CHARACTERS))
    numbered = numbers[text]
    if len(foreign := np.flatnonzero(numbered == len(CHARACTERS))):
        raise ValueError(
            f"{path} is another text: byte {foreign[0]} is {chr(text[foreign[0]])!r}, which is not in its alphabet"
        )
    return numbered
