"""Small models and training loops, as in a user's script."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, Optimizer

import thinwire
from thinwire import DataParallel, WarmUp, strategy_of
from thinwire.extend import Decentralized
from thinwire.inspect import parts_of
from thinwire.methods import METHODS

INPUTS, CLASSES = 20, 10


def is_dense_at_first(name: str) -> bool:
    return any(isinstance(part, WarmUp) for part in parts_of(strategy_of(name)))


# Without methods that start with dense steps: tests are shorter than these. test_learned.py has one with short phases.
NAMES = tuple(n for n in METHODS if isinstance(strategy_of(n), DataParallel) and not is_dense_at_first(n))
DECENTRALIZED = tuple(name for name in METHODS if isinstance(strategy_of(name), Decentralized))
BASIC_KINDS = ("dense", "powersgd", "topk", "int8", "sign")  # one of each kind
# And with other states, servers and messages: for tests that depend on the kind of method, not on its codec.
# tests/contracts covers all codecs.
KINDS = (*BASIC_KINDS, "adacomp", "ef21", "server")
# Methods and numbers of ranks: all methods with two, one of each kind with four.
BY_RANKS = tuple((name, 2) for name in NAMES) + tuple((name, 4) for name in BASIC_KINDS)
VARIABLE = ("topk8", "adacomp", "dgc", "gennorm", "co3")  # the length of messages changes from step to step
FIXED = tuple(name for name in NAMES if name not in VARIABLE)
TINY_BUCKETS = 0.002  # in MB: the classifier below needs at least three of them


def classifier(seed: int = 0) -> nn.Sequential:
    """Matrices for low-rank methods, one of them too large to be fused with other tensors, and vectors."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(INPUTS, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, CLASSES))


def batch(step: int, rank: int | None = None, size: int = 32) -> tuple[Tensor, Tensor]:
    """The examples of a rank for a step, all labeled by one rule that a model can learn."""
    rank = dist.get_rank() if rank is None else rank
    x = torch.randn(size, INPUTS, generator=torch.Generator().manual_seed(1000 * step + rank))
    rule = torch.randn(INPUTS, CLASSES, generator=torch.Generator().manual_seed(12345))
    return x, (x @ rule).argmax(1)


def loss_of(model: nn.Module, step: int, rank: int | None = None) -> Tensor:
    x, y = batch(step, rank)
    return cross_entropy(model(x), y)


def held_out_loss(model: nn.Module) -> float:
    """The loss on examples that all ranks share and none trains on."""
    x, y = batch(-1, rank=99, size=256)
    with torch.no_grad():
        return cross_entropy(getattr(model, "module", model)(x), y).item()


def sgd(model: nn.Module, lr: float = 0.1) -> SGD:
    return SGD(model.parameters(), lr=lr, momentum=0.9)


def train(
    model: nn.Module,
    optimizer: Optimizer,
    steps: Iterable[int],
    loss: Callable[[nn.Module, int], Tensor] = loss_of,
    handle: thinwire.Handle | None = None,
) -> None:
    for step in steps:
        optimizer.zero_grad()
        value = loss(model, step)
        value.backward()  # type: ignore[no-untyped-call]
        if handle is not None:
            handle.report_loss(value)
        optimizer.step()


def parameters(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in getattr(model, "module", model).named_parameters()}


def gradients(model: nn.Module) -> dict[str, Tensor | None]:
    named = getattr(model, "module", model).named_parameters()
    return {name: None if p.grad is None else p.grad.detach().clone() for name, p in named}


def buckets_of(ddp: DistributedDataParallel) -> int:
    """The number of buckets that DDP logs, after it has rebuilt them in its first step."""
    return len(ddp._get_ddp_logging_data()["rebuilt_bucket_sizes"].split(","))  # type: ignore[no-untyped-call]


def totals(handle: thinwire.Handle) -> dict[str, float]:
    """The counts of the meter, without seconds, which differ from run to run."""
    counts = handle.meter.as_dict(prefix="")
    return {name: value for name, value in counts.items() if not name.endswith("_seconds")}


def trained_ddp(
    method: Any, steps: int, build: Callable[[], nn.Module] = classifier, **options: Any
) -> dict[str, Tensor]:
    """The parameters after some steps of DDP with a method, or of plain DDP without one."""
    ddp = DistributedDataParallel(build(), **options)
    handle = None if method is None else thinwire.attach(ddp, method)
    train(ddp, sgd(ddp), range(steps))
    if handle is not None:
        handle.detach()
    return parameters(ddp)


def same(left: Any, right: Any) -> bool:
    """Whether two nests of tensors, numbers and containers are equal to the bit, types and all."""
    if type(left) is not type(right):
        return False
    if isinstance(left, Tensor):
        if left.dtype != right.dtype or left.shape != right.shape:
            return False
        a, b = (x.detach().contiguous().flatten().view(torch.uint8) for x in (left, right))
        return torch.equal(a, b)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, tuple | list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def all_same(replicas: Iterable[Any]) -> bool:
    first, *others = replicas
    assert others, "one replica is always equal to itself"
    return all(same(first, other) for other in others)


def distance(left: dict[str, Tensor], right: dict[str, Tensor]) -> float:
    """The norm of the difference of two models (or their gradients), relative to the norm of the second."""
    assert left.keys() == right.keys()
    a, b = (torch.cat([x.flatten() for x in tensors.values()]) for tensors in (left, right))
    return float((a - b).norm() / b.norm())


def error_of(action: Callable[[], Any]) -> tuple[str, str]:
    """The type and text of the error that an action raises."""
    try:
        action()
    except Exception as error:
        return type(error).__name__, str(error)
    return "nothing", "no error"
