"""How much smaller AdaComp makes gradients drawn from a bell curve, once what it leaves unsaid has settled.

Each form on the wire, and the least that could tell the positions and the signs if the positions were drawn by chance.
"""

from math import log2

import torch

from benchmarks.rows import Row, at_least
from thinwire import AdaComp
from thinwire.extend import Reply
from thinwire.kernels.sparse_tensor import SparseTensor
from thinwire.wire import payload

SIZE, STEPS, SETTLED = 1_000_000, 60, 40
FLOORS = {50: 40.0, 500: 200.0}  # times smaller, as the paper has them for convolutions and for dense layers


def run() -> list[Row]:
    rows = []
    for bin_size, floor in FLOORS.items():
        density, said = measure(bin_size)
        for form, bits in said.items():
            ratio = 32 / (bits * density)
            what = f"AdaComp({bin_size}) on a bell curve, {form}: {bits:.2f} bits an entry sent, times smaller"
            rows.append(Row(what, ratio, at_least(ratio, floor) if form == "compact" else ""))
    return rows


def measure(bin_size: int) -> tuple[float, dict[str, float]]:
    """The share of entries that is sent, and the bits that each takes, by form."""
    reducer, draws = AdaComp(bin_size), torch.Generator().manual_seed(0)
    state = reducer.init(torch.zeros(SIZE), 0)
    sent, bits = 0, {"paper": 0, "compact": 0}
    for step in range(STEPS):
        conversation = reducer.reduce(torch.randn(SIZE, generator=draws), state)
        marks = next(conversation).tensor
        assert isinstance(marks, SparseTensor)
        if step >= SETTLED:
            sent += marks.values.numel()
            for form in bits:
                bits[form] += 8 * payload.encode(marks, AdaComp(bin_size, form=form).codec, 0).numel()
        try:
            conversation.send(Reply(marks, marks))  # type: ignore[arg-type]  # the reducer takes lazy replies
        except StopIteration as end:
            state = end.value[1]
    density = sent / (SIZE * (STEPS - SETTLED))
    least = -log2(density) - (1 - density) / density * log2(1 - density) + 1
    return density, {form: count / sent for form, count in bits.items()} | {"the least possible": least}
