"""Compression error of methods against bits per entry: `thinwire contraction`."""

from pathlib import Path

from thinwire.lab.contraction.contraction_page import page
from thinwire.lab.contraction.contraction_table import shown
from thinwire.lab.contraction.measure import Study, study
from thinwire.lab.contraction.sources import Source, of_distributions, of_run
from thinwire.lab.report.embedded_pages import CONTRACTION as PAGE

__all__ = ["FAMILY", "PAGE", "Source", "Study", "of_distributions", "of_run", "shown", "study", "write"]

# The default methods: one of each kind, biased ones next to their unbiased variants.
FAMILY = (
    "TopK(0.01)",
    "RandomK(0.01)",
    "RandomK(0.01, unbiased=True)",
    "AdaptiveRandom(0.01)",
    "AdaptiveRandom(0.01, unbiased=True)",
    "Sign()",
    "Ternary()",
    "Quantize(8)",
    "Quantize(4)",
    "Quantize(4, stochastic=True)",
    "Dither(7)",
    "Dither(7, block=512)",
    "ExponentialDither(norm=2)",
    "ExponentialDither()",
    "ExponentialDither(block=512)",
    "Shrink(ExponentialDither())",
    "NaturalCompression()",
    "Chain(NaturalCompression(), Entropy())",
    "Round()",
    "Chain(Round(), Entropy())",
    "Chain(TopK(0.01), Cast('float16'))",
    "Chain(TopK(0.01), Quantize(4))",
    "Chain(TopK(0.01), ExponentialDither(levels=3))",
    "Chain(TopK(0.01), Round(), Entropy())",
    "Chain(TopK(0.1), ExponentialDither(levels=3))",
    "Chain(TopK(0.1), Sign())",
    "PowerSGD(1)",
    "PowerSGD(4)",
    "AdaComp()",
)


def write(study: Study, folder: Path) -> Path:
    """Save the page into a folder; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PAGE).write_text(page(study), "utf-8")
    return folder / PAGE
