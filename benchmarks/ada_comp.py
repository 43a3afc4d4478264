"""AdaComp's compression ratio on normal gradients, once its residual has settled.

For each wire format, and for the lower bound of positions and signs if the positions were random.
"""

from math import log2

import torch

from benchmarks.rows import Row, at_least
from thinwire import AdaComp
from thinwire.extend import Reply
from thinwire.kernels.sparse_tensor import SparseTensor
from thinwire.wire import payload

SIZE, STEPS, SETTLED = 1_000_000, 60, 40
FLOORS = {50: 40.0, 500: 200.0}  # ratios that the paper reports for convolutions and for dense layers


def run() -> list[Row]:
    rows = []
    for bin_size, floor in FLOORS.items():
        density, bits_of = measure(bin_size)
        for form, bits in bits_of.items():
            ratio = 32 / (bits * density)
            what = (
                f"AdaComp({bin_size}) on a normal gradient, {form}: {bits:.2f} bits per sent entry, compression ratio"
            )
            rows.append(Row(what, ratio, at_least(ratio, floor) if form == "compact" else ""))
    return rows


def measure(bin_size: int) -> tuple[float, dict[str, float]]:
    """The fraction of entries that is sent, and the bits per sent entry, by format."""
    reducer, generator = AdaComp(bin_size), torch.Generator().manual_seed(0)
    state = reducer.init(torch.zeros(SIZE), 0)
    sent, bits = 0, {"paper": 0, "compact": 0}
    for step in range(STEPS):
        conversation = reducer.reduce(torch.randn(SIZE, generator=generator), state)
        signs = next(conversation).tensor
        assert isinstance(signs, SparseTensor)
        if step >= SETTLED:
            sent += signs.values.numel()
            for form in bits:
                bits[form] += 8 * payload.encode(signs, AdaComp(bin_size, form=form).codec, 0).numel()
        try:
            conversation.send(Reply(signs, signs))  # type: ignore[arg-type]  # the reducer takes lazy replies
        except StopIteration as end:
            state = end.value[1]
    density = sent / (SIZE * (STEPS - SETTLED))
    least = -log2(density) - (1 - density) / density * log2(1 - density) + 1
    return density, {form: count / sent for form, count in bits.items()} | {"lower bound": least}
