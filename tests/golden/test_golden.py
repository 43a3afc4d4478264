import pytest
import torch

import thinwire
from thinwire import parse
from thinwire.extend import Codec
from thinwire.wire import payload

from .cases import CODECS, DTYPES, SEED, Frozen, from_hex, frozen, in_hex, load, tensor

# Here the encoder may choose the bytes: stochastic rounding, and fitted scales or distributions, may change between
# versions. Decoding depends on the bytes only.
ENCODER_CHOOSES = ("stochastic", "scaled", "Dither", "NaturalCompression", "AdaptiveRandom")
chosen = [entry for entry in load() if any(word in entry.codec for word in ENCODER_CHOOSES)]
deterministic = [entry for entry in load() if entry not in chosen]
exact = [entry for entry in deterministic if "Entropy" not in entry.codec]


def name(entry: Frozen) -> str:
    return f"{entry.codec}-{entry.dtype}"


def test_every_codec_and_dtype_has_a_golden_case() -> None:
    assert [(entry.codec, entry.dtype) for entry in load()] == [(repr(c), dtype) for c in CODECS for dtype in DTYPES]
    public = [getattr(thinwire, name) for name in thinwire.__all__]
    classes = {cls for cls in public if isinstance(cls, type) and issubclass(cls, Codec) and cls is not Codec}
    assert {type(codec) for codec in CODECS} == classes


@pytest.mark.parametrize("entry", exact, ids=name)
def test_encoding_gives_the_golden_bytes(entry: Frozen) -> None:
    assert frozen(parse(entry.codec), entry.dtype) == entry


@pytest.mark.parametrize("entry", load(), ids=name)
def test_golden_bytes_decode_to_the_same_tensor(entry: Frozen) -> None:
    decoded = payload.decode(from_hex(entry.sealed), parse(entry.codec), SEED, tensor(entry.dtype))
    assert in_hex(decoded) == entry.decoded


@pytest.mark.parametrize("entry", deterministic, ids=name)
def test_current_payloads_decode_to_the_same_tensor(entry: Frozen) -> None:
    assert frozen(parse(entry.codec), entry.dtype).decoded == entry.decoded


@pytest.mark.parametrize("entry", chosen, ids=name)
def test_payloads_that_the_encoder_chooses_have_the_same_length(entry: Frozen) -> None:
    assert len(frozen(parse(entry.codec), entry.dtype).sealed) == len(entry.sealed)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_golden_tensor_is_exact_and_has_no_ties(dtype: str) -> None:
    # With ties, the sort would decide which of two entries is among the largest.
    x = tensor(dtype).double().flatten()
    assert torch.equal(x, tensor("float64").flatten())
    magnitudes = x[x != 0].abs()
    assert magnitudes.unique().numel() == magnitudes.numel() == 30
