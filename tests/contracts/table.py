"""Instances of every public codec, reducer and strategy: what the contract tests run over.

`test_table.py` fails if a public class is not here.
"""

from thinwire import (
    AdaComp,
    After,
    Average,
    BinMarks,
    Cast,
    Chain,
    Choose,
    Codec,
    DataParallel,
    Entropy,
    Feedback,
    Identity,
    Marks,
    Momentum,
    Nonzero,
    Peers,
    PowerIteration,
    PowerSGD,
    Quantize,
    RandomK,
    Reducer,
    Server,
    Sharded,
    Sign,
    Strategy,
    Ternary,
    TopK,
    When,
)

LOSSLESS: tuple[Codec, ...] = (
    Identity(),
    Nonzero(),
    Entropy(),
    Chain(Nonzero(), Entropy()),
    Chain(Identity(), Nonzero(), Nonzero()),
    Chain(Entropy(), Entropy()),
)

CODECS: tuple[Codec, ...] = (
    *LOSSLESS,
    Cast("float16"),
    Cast("bfloat16"),
    RandomK(0.3),
    RandomK(1.0),
    TopK(0.25),
    TopK(0.001),
    Quantize(8),
    Quantize(2),
    Quantize(5, block=4),
    Quantize(4, stochastic=True),
    Sign(),
    Ternary(),
    Ternary(0.0),
    Marks(),
    BinMarks(5),
    BinMarks(500),
    Chain(TopK(0.25), Marks(), Entropy()),
    Chain(BinMarks(50), Entropy()),
    Chain(RandomK(0.5), Cast("bfloat16")),
    Chain(TopK(0.25), Cast("float16")),
    Chain(TopK(0.5), TopK(0.5), Quantize(3)),
    Chain(TopK(0.25), Quantize(8), Entropy()),
    Chain(Nonzero(), Quantize(4)),
    Chain(Chain(Nonzero(), Ternary()), Entropy()),
    Chain(RandomK(0.5), Sign()),
)

LOSSLESS_REDUCERS: tuple[Reducer, ...] = (
    Average(),
    Average(Nonzero()),
    Average(Entropy()),
    Feedback(Identity()),
    Feedback(Chain(Nonzero(), Entropy())),
    Server(Identity(), Identity()),
    Server(Nonzero(), Entropy(), at=0),
    Sharded(Identity(), Identity()),
    Sharded(Entropy(), Nonzero()),
    After(1, Nonzero()),
    Choose(When(Entropy(), min_dim=2)),
)

# Feedback that forgets nothing, and what it may be wrapped around.
FEEDBACK: tuple[Feedback, ...] = (
    Feedback(TopK(0.1)),
    Feedback(RandomK(0.3)),
    Feedback(Sign()),
    Feedback(Ternary()),
    Feedback(Quantize(4)),
    Feedback(Chain(TopK(0.2), Quantize(8), Entropy())),
    Feedback(Sharded(Quantize(8), Quantize(8))),
    Feedback(Sharded(Chain(TopK(0.2), Entropy()), Quantize(4))),
    Feedback(Server(Quantize(8), Quantize(8))),
    Feedback(PowerSGD(2)),
    Feedback(PowerSGD(1, codec=Cast("float16"))),
    Feedback(PowerIteration(1)),
    Feedback(PowerIteration(2, iterations=2)),
    Feedback(After(1, PowerSGD(1))),
    Feedback(Choose(When(Sign(), min_dim=2), otherwise=TopK(0.5))),
)

REDUCERS: tuple[Reducer, ...] = (
    *LOSSLESS_REDUCERS,
    *FEEDBACK,
    Average(Cast("float16")),
    Average(RandomK(0.3)),
    Average(Chain(TopK(0.25), Quantize(8), Entropy())),
    Average(Quantize(4, stochastic=True)),
    Feedback(TopK(0.1), decay=0.9),
    AdaComp(),
    AdaComp(4),
    AdaComp(10, factor=1.0, form="paper"),
    AdaComp(100, factor=3.0, form="paper"),
    Momentum(),
    Momentum(0.1, momentum=0.5, outside=0.0, clip=2.0, values=Chain(Quantize(8), Entropy())),
    Momentum(0.05, clip=1.0, ramp_steps=2, values=Identity()),
    PowerSGD(1),
    PowerSGD(2, codec=Quantize(8)),
    PowerIteration(1),
    PowerIteration(2, iterations=3, codec=Cast("bfloat16")),
    Server(Quantize(8), TopK(0.25)),
    Sharded(Quantize(8), Sign()),
    After(2, Feedback(TopK(0.1))),
    After(1, PowerSGD(1), first=Cast("float16")),
    Choose(When(PowerSGD(2), min_dim=2), otherwise=Cast("float16")),
)

STRATEGIES: tuple[Strategy, ...] = (
    DataParallel(Average()),
    DataParallel(Cast("bfloat16")),
    DataParallel(Feedback(PowerSGD(2))),
    DataParallel(Feedback(Sharded(Quantize(8), Quantize(8))), fuse_below=0),
    DataParallel(Choose(When(Feedback(Chain(TopK(0.1), Entropy())), min_dim=2)), fuse_below=100),
    DataParallel(After(1, Feedback(Sign()))),
)

# What has a notation without being any of these.
OTHERS = (
    When(TopK(0.1), kinds=("conv", "dense"), names=("features.*",), min_dim=2, min_size=10, max_size=1000),
    When(Average(), kinds="norm"),
    Peers("world", ((0, 0.5), (1, 0.5))),
    Peers("edge", ((0, 1.0), (1, -1.0))),
)
