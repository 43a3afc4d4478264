"""Tiny Shakespeare (Karpathy, 2015): 1,115,394 characters of his plays, 65 different ones."""

from pathlib import Path

import numpy as np

from thinwire.lab.tasks.datasets.files import Array, missing
from thinwire.lab.tasks.datasets.text import Text

CHARACTERS = "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
LENGTH = 1_115_394
TRAINING = int(0.9 * LENGTH)  # characters; the rest is the test part
PLACES = ("tinyshakespeare.txt", "tinyshakespeare/input.txt", "input.txt")


def load(folder: Path | None, window: int) -> tuple[Text, Text]:
    """The first nine tenths and the last tenth, in windows of so many characters."""
    numbers = read(found(folder))
    return Text(numbers[:TRAINING], window), Text(numbers[TRAINING:], window)


def found(folder: Path | None) -> Path:
    for place in PLACES:
        if folder and (folder / place).is_file():
            return folder / place
    raise missing(
        "Tiny Shakespeare",
        folder,
        PLACES,
        "It is the file data/tinyshakespeare/input.txt of the GitHub repository karpathy/char-rnn",
    )


def read(path: Path) -> Array:
    """The number of each character, by its place in the alphabet of this text."""
    text = np.fromfile(path, np.uint8)
    if len(text) != LENGTH:
        raise ValueError(
            f"{path} has {len(text):,} bytes, but Tiny Shakespeare has {LENGTH:,}: it is cut short, or another text"
        )
    numbers = np.full(256, len(CHARACTERS), np.uint8)
    numbers[np.frombuffer(CHARACTERS.encode(), np.uint8)] = np.arange(len(CHARACTERS))
    numbered = numbers[text]
    if len(foreign := np.flatnonzero(numbered == len(CHARACTERS))):
        raise ValueError(
            f"{path} is another text: byte {foreign[0]} is {chr(text[foreign[0]])!r}, which is not in its alphabet"
        )
    return numbered
