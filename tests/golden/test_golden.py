import pytest
import torch

import thinwire
from thinwire import parse
from thinwire.extend import Codec
from thinwire.wire import payload

from .cases import CODECS, DTYPES, SEED, Frozen, from_hex, frozen, in_hex, load, tensor

# By chance a sender may round as it likes, and what it fits, such as a scale or a law, it may compute as it likes: what
# the peers make of it depends on the bytes alone.
CHOICES = ("stochastic", "scaled", "Dither", "NaturalCompression", "AdaptiveRandom")
by_choice = [entry for entry in load() if any(word in entry.codec for word in CHOICES)]
agreed = [entry for entry in load() if entry not in by_choice]
exact = [entry for entry in agreed if "Entropy" not in entry.codec]


def name(entry: Frozen) -> str:
    return f"{entry.codec}-{entry.dtype}"


def test_every_codec_and_type_is_frozen() -> None:
    assert [(entry.codec, entry.dtype) for entry in load()] == [(repr(c), dtype) for c in CODECS for dtype in DTYPES]
    public = [getattr(thinwire, name) for name in thinwire.__all__]
    classes = {cls for cls in public if isinstance(cls, type) and issubclass(cls, Codec) and cls is not Codec}
    assert {type(codec) for codec in CODECS} == classes


@pytest.mark.parametrize("entry", exact, ids=name)
def test_what_is_said_is_what_was_frozen(entry: Frozen) -> None:
    assert frozen(parse(entry.codec), entry.dtype) == entry


@pytest.mark.parametrize("entry", load(), ids=name)
def test_what_was_frozen_is_still_understood(entry: Frozen) -> None:
    decoded = payload.decode(from_hex(entry.sealed), parse(entry.codec), SEED, tensor(entry.dtype))
    assert in_hex(decoded) == entry.decoded


@pytest.mark.parametrize("entry", agreed, ids=name)
def test_what_is_said_now_is_understood_alike(entry: Frozen) -> None:
    assert frozen(parse(entry.codec), entry.dtype).decoded == entry.decoded


@pytest.mark.parametrize("entry", by_choice, ids=name)
def test_what_is_rounded_by_choice_takes_as_many_bytes_as_ever(entry: Frozen) -> None:
    assert len(frozen(parse(entry.codec), entry.dtype).sealed) == len(entry.sealed)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_frozen_tensor_is_exact_and_without_ties(dtype: str) -> None:
    # A tie would leave it to the sorting which of two entries is among the largest.
    x = tensor(dtype).double().flatten()
    assert torch.equal(x, tensor("float64").flatten())
    magnitudes = x[x != 0].abs()
    assert magnitudes.unique().numel() == magnitudes.numel() == 30
