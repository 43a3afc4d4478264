"""The short names: the notation of each, and one line on what it is and when to use it.

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
    use: str  # what it is and when to use it

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
            "Uncompressed all-reduce, as in DDP: the baseline. For networks that are not the bottleneck.",
        ),
        Method(
            "fp16",
            "Average(Cast('float16'))",
            "Float16: half the bytes, 11 significant bits. The first thing to try.",
        ),
        Method(
            "bf16",
            "Average(Cast('bfloat16'))",
            "Bfloat16: as fp16 with fewer significant bits and the range of float32. For gradients of a wide range.",
        ),
        Method(
            "int8",
            "ErrorFeedback(Sharded(Quantize(8), Quantize(8)))",
            "8-bit quantization: a quarter of the bytes, constant in the number of ranks. When half is not enough.",
        ),
        Method(
            "int4",
            "ErrorFeedback(Sharded(Quantize(4), Quantize(4)))",
            "4-bit quantization: an eighth of the bytes, constant in the number of ranks. When int8 is still too slow.",
        ),
        Method(
            "natural",
            "Sharded(NaturalCompression(), NaturalCompression())",
            "Natural compression: a sign and a power of two, unbiased. When state is unwanted; otherwise int8.",
        ),
        Method(
            "ternary",
            "Choose(When(ErrorFeedback(Ternary()), min_dim=2))",
            "Ternary quantization: two bits per entry. For few ranks: each message goes to every other rank.",
        ),
        Method(
            "sign",
            "Choose(When(ErrorFeedback(Sign()), min_dim=2))",
            "SignSGD with error feedback: one bit per entry. For few ranks; converges slower.",
        ),
        Method(
            "topk",
            "ErrorFeedback(Chain(TopK(0.01), Cast('float16')))",
            "Top-k sparsification: the largest 1 %, with error feedback. For large models, slow links and few ranks.",
        ),
        Method(
            "topk8",
            "ErrorFeedback(Chain(TopK(0.01), Quantize(8), Entropy()))",
            "As topk with 8-bit values, entropy-coded. When bytes matter more than the time to encode them.",
        ),
        Method(
            "topk-dither",
            "ErrorFeedback(Chain(TopK(0.01), ExponentialDither(block=512)))",
            "As topk with values in 4 bits, stochastically rounded to powers of two. When topk sends too many bytes.",
        ),
        Method(
            "ef21",
            "EF21(Chain(TopK(0.01), Cast('float16')), momentum=0.9)",
            "EF21: the largest 1 % of the change in a running mean of gradients. For large batches and few ranks.",
        ),
        Method(
            "adacomp",
            "AdaComp()",
            "AdaComp: signs of the entries near the maximum of their bin. Adapts to each layer; for few ranks.",
        ),
        Method(
            "dgc",
            "DGC(ramp_steps=500)",
            "DGC: the largest 0.1 % of accumulated momentum. For SGD with momentum 0.9, slow links and few ranks.",
        ),
        Method(
            "led",
            "WarmUp(200, DGC(by=LeaderTopK(values=Quantize(4))))",
            "DGC at the indices of a rotating leader's largest 0.1 %, values in 4 bits. For SGD with momentum 0.9.",
        ),
        Method(
            "lgc",
            "WarmUp(200, DGC(by=LeaderTopK(values=LGC())))",
            "LGC: as led with values as codes of a learned autoencoder. For study: led sends fewer bytes.",
        ),
        Method(
            "lgc-ps",
            "WarmUp(200, DGC(by=Server(LeaderTopK(values=LGCServer()), Nonzero())), "
            "first=Server(Identity(), Identity()))",
            "LGC through a parameter server at rank 0: one rank's code represents all. For study.",
        ),
        Method(
            "gennorm",
            "Average(Chain(MiniFloat(), Entropy(GenNorm(grid='fp8-152'), coder=Huffman())))",
            "8-bit floats, entropy-coded by a fitted distribution: 3 to 6 bits. For gradients above 1e-4, few ranks.",
        ),
        Method(
            "co3",
            "Choose(When(ErrorFeedback(FittedFloat(), decay=0.7), min_dim=2))",
            "4-bit floats, scaled and entropy-coded by each layer's fitted distribution: 1 to 3 bits. For few ranks.",
        ),
        Method(
            "randomk",
            "ErrorFeedback(RandomK(0.05))",
            "Random-k sparsification: the same random 5 % on all ranks. Cheap to compute; converges slower than topk.",
        ),
        Method(
            "powersgd",
            "ErrorFeedback(PowerSGD(4))",
            "PowerSGD of rank 4: two low-rank factors per matrix, all-reduced. For slow links and large matrices.",
        ),
        Method(
            "powersgd-half",
            "ErrorFeedback(PowerIteration(4))",
            "As powersgd, one factor per step, left and right in turn: half the bytes and rounds. For high latency.",
        ),
        Method(
            "server",
            "ErrorFeedback(Server(Quantize(8), Quantize(8)))",
            "A parameter server at rank 0, 8 bits in each direction. For ranks that can only reach one machine.",
        ),
        Method(
            "dpsgd",
            "Gossip(Identity())",
            "D-PSGD: each replica averages with its two neighbors on a ring. The baseline of decentralized methods.",
        ),
        Method(
            "choco",
            "Gossip(Difference(Chain(TopK(0.01), Cast('float16'))), rate=0.08)",
            "CHOCO-SGD: as dpsgd, sending the largest 1 % of the change. For the slowest links; tune its rate.",
        ),
        Method(
            "powergossip",
            "EdgeGossip(PowerIteration(1))",
            "PowerGossip: as dpsgd, sending low-rank differences over each edge. For large matrices; nothing to tune.",
        ),
        Method(
            "sgp",
            "PushSum()",
            "SGP: push-sum gossip; each rank sends to one other per step, in turn. For slow or distant neighbors.",
        ),
        Method(
            "osgp",
            "PushSum(overlap=1)",
            "Overlap SGP: as sgp, sent while the next step is computed. When computing takes about as long as sending.",
        ),
        Method(
            "local",
            "LocalSGD(Identity())",
            "Local SGD: ten local steps, then the mean of the replicas. A tenth of the bytes and round trips.",
        ),
        Method(
            "diloco",
            "LocalSGD(Identity(), every=50, outer=OuterSGD(0.7, momentum=0.9, nesterov=True))",
            "DiLoCo: fifty local steps, then a Nesterov step along their mean. For Adam across data centers.",
        ),
        Method(
            "sparseloco",
            "LocalSGD(ErrorFeedback(Chain(TopK(0.02), Quantize(4)), decay=0.95), every=30)",
            "SparseLoCo: thirty local steps, then the largest 2 % of their change in 4 bits. For the slowest links.",
        ),
        Method(
            "easgd",
            "EASGD()",
            "EASGD: sixteen local steps, then elastic averaging with a center variable. The baseline of lsgd.",
        ),
        Method(
            "lsgd",
            "LeaderSGD()",
            "Leader SGD: as easgd, pulled towards the replica with the lowest loss. Only that replica sends.",
        ),
        Method(
            "ab",
            "ABTraining()",
            "AB-training: two groups, each training one low-rank factor of every matrix. Gives a smaller model.",
        ),
    )
}
