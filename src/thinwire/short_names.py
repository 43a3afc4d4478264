"""The short names: the notation of each, and a line on when to use it.

This module imports without torch, so that the command line can list the names at once.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .core import Reducer, Strategy


@dataclass(frozen=True)
class Method:
    """A short name with the notation that it stands for.

    Examples:
        >>> from thinwire import METHODS
        >>> METHODS["topk"].notation
        "ErrorFeedback(Chain(TopK(0.01), Cast('float16')))"
        >>> METHODS["fp16"].built
        Average(Cast('float16'))
    """

    name: str
    notation: str
    use: str  # when to use it

    @cached_property
    def built(self) -> "Reducer | Strategy":
        """The object that the notation describes, parsed on first use."""
        from .core import Reducer, Strategy
        from .notation import parse

        built = parse(self.notation)
        assert isinstance(built, Reducer | Strategy)
        return built


# The methods with a short name, in the order in which `thinwire methods` lists them.
METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            "dense",
            "Average()",
            "The baseline: full precision, as DDP does it. When the wire is not the problem.",
        ),
        Method(
            "fp16",
            "Average(Cast('float16'))",
            "Half the bytes, rounded to 11 bits. The first thing to try.",
        ),
        Method(
            "bf16",
            "Average(Cast('bfloat16'))",
            "As fp16, for gradients of very different sizes.",
        ),
        Method(
            "int8",
            "ErrorFeedback(Sharded(Quantize(8), Quantize(8)))",
            "A quarter of the bytes, flat as ranks are added. When half is not enough.",
        ),
        Method(
            "int4",
            "ErrorFeedback(Sharded(Quantize(4), Quantize(4)))",
            "An eighth of the bytes, flat as ranks are added. When int8 is still too slow.",
        ),
        Method(
            "natural",
            "Sharded(NaturalCompression(), NaturalCompression())",
            "A sign and a power of two an entry, right on average. When nothing may be remembered; else int8.",
        ),
        Method(
            "ternary",
            "Choose(When(ErrorFeedback(Ternary()), min_dim=2))",
            "Two bits an entry. For few ranks: every rank's message goes to every other.",
        ),
        Method(
            "sign",
            "Choose(When(ErrorFeedback(Sign()), min_dim=2))",
            "One bit an entry. For few ranks; converges slower.",
        ),
        Method(
            "topk",
            "ErrorFeedback(Chain(TopK(0.01), Cast('float16')))",
            "The largest 1 %, the rest later. For large models on thin links, few ranks.",
        ),
        Method(
            "topk8",
            "ErrorFeedback(Chain(TopK(0.01), Quantize(8), Entropy()))",
            "As topk with 8-bit values, squeezed. When every byte counts more than the time to squeeze it.",
        ),
        Method(
            "topk-dither",
            "ErrorFeedback(Chain(TopK(0.01), ExponentialDither(block=512)))",
            "As topk with values rounded by chance to powers of two, in 4 bits. When topk's bytes are still too many.",
        ),
        Method(
            "ef21",
            "EF21(Chain(TopK(0.01), Cast('float16')), momentum=0.9)",
            "The largest 1 % of what is new in a running mean of gradients: EF21. For large batches, few ranks.",
        ),
        Method(
            "adacomp",
            "AdaComp()",
            "The entries that could soon be the largest of their bin, as signs. Adapts to each layer; few ranks.",
        ),
        Method(
            "dgc",
            "DGC(ramp_steps=500)",
            "The largest 0.1 % of summed-up momentum: DGC. For SGD with momentum 0.9 on the thinnest links, few ranks.",
        ),
        Method(
            "led",
            "WarmUp(200, DGC(by=LeaderTopK(values=Quantize(4))))",
            "Values at a leader's largest 0.1 % in 4 bits: one rank tells the places. For SGD with momentum 0.9.",
        ),
        Method(
            "lgc",
            "WarmUp(200, DGC(by=LeaderTopK(values=LGC())))",
            "Values at a leader's largest 0.1 %, as learned codes: LGC. For study: led says the same in fewer bytes.",
        ),
        Method(
            "lgc-ps",
            "WarmUp(200, DGC(by=Server(LeaderTopK(values=LGCServer()), Nonzero())), "
            "first=Server(Identity(), Identity()))",
            "As lgc, by way of a server at rank 0: one rank's code stands for all. For study, too.",
        ),
        Method(
            "gennorm",
            "Average(Chain(MiniFloat(), Entropy(GenNorm(grid='fp8-152'), coder=Huffman())))",
            "8-bit floats, coded under a fitted law: 3 to 6 bits an entry. For few ranks and gradients above 1e-4.",
        ),
        Method(
            "co3",
            "Choose(When(ErrorFeedback(FittedFloat(), decay=0.7), min_dim=2))",
            "4-bit floats on a scale that suits each layer's law, coded under it: 1 to 3 bits an entry. For few ranks.",
        ),
        Method(
            "randomk",
            "ErrorFeedback(RandomK(0.05))",
            "A random 5 % that all ranks agree on. The cheapest to compute; converges slower than topk.",
        ),
        Method(
            "powersgd",
            "ErrorFeedback(PowerSGD(4))",
            "Two thin factors per matrix, flat as ranks are added. For thin links and models of large matrices.",
        ),
        Method(
            "powersgd-half",
            "ErrorFeedback(PowerIteration(4))",
            "One factor a step, left and right in turn: half the bytes and rounds of powersgd, for slow round trips.",
        ),
        Method(
            "server",
            "ErrorFeedback(Server(Quantize(8), Quantize(8)))",
            "A parameter server at rank 0, 8 bits each way. When the ranks can only reach one machine.",
        ),
        Method(
            "dpsgd",
            "Gossip(Identity())",
            "Replicas of their own, mixed with two neighbors' on a ring: D-PSGD. The baseline without a center.",
        ),
        Method(
            "choco",
            "Gossip(Difference(Chain(TopK(0.01), Cast('float16'))), rate=0.08)",
            "As dpsgd, saying the largest 1 % of what is new: CHOCO-SGD. For the thinnest links; tune its rate.",
        ),
        Method(
            "powergossip",
            "EdgeGossip(PowerIteration(1))",
            "As dpsgd, saying low-rank differences over each edge: PowerGossip. Nothing to tune; large matrices.",
        ),
        Method(
            "sgp",
            "PushSum()",
            "Half of each replica goes to one other in turn, one way: SGP. When neighbors are slow or far.",
        ),
        Method(
            "osgp",
            "PushSum(overlap=1)",
            "As sgp, while the next step is computed: overlapped SGP. When computing takes about as long as sending.",
        ),
        Method(
            "local",
            "LocalSGD(Identity())",
            "Ten steps on one's own, then the mean: local SGD. A tenth of the bytes and of the round trips.",
        ),
        Method(
            "diloco",
            "LocalSGD(Identity(), every=50, outer=OuterSGD(0.7, momentum=0.9, nesterov=True))",
            "Fifty steps on one's own, then a Nesterov step along their mean: DiLoCo. For Adam over long distances.",
        ),
        Method(
            "sparseloco",
            "LocalSGD(ErrorFeedback(Chain(TopK(0.02), Quantize(4)), decay=0.95), every=30)",
            "Thirty steps on one's own, then the largest 2 % of them in 4 bits: SparseLoCo. For the thinnest links.",
        ),
        Method(
            "easgd",
            "EASGD()",
            "Sixteen steps on one's own, then some of the way to a common center: EASGD. The baseline of lsgd.",
        ),
        Method(
            "lsgd",
            "LeaderSGD()",
            "As easgd, towards whichever replica has the lowest loss: Leader SGD. Only that one speaks.",
        ),
        Method(
            "ab",
            "ABTraining()",
            "Two groups, each training one thin factor of every matrix on its own: AB-training. The model gets small.",
        ),
    )
}
