"""The devices of one replica: parts of a model that are on one of them each."""

import json
import os
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor, nn

from ..runtime.replica_of import is_dtensor
from ..transports import Transport
from .contract import Contract, called_at
from .nests import Nest, leaves, rebuilt, told


class LogicalDevice:
    """One of a replica's devices: a process of its own, or a part of this one."""

    def __init__(self, index: int, device: torch.device, replica: Contract | None) -> None:
        self.index, self.device = index, device
        self._replica = replica  # between the processes of this replica; None if there is but this one

    def __repr__(self) -> str:
        return f"<logical device {self.index}, {'here' if self.here else 'in another process'}, {self.device}>"

    @property
    def here(self) -> bool:
        """Whether this process has it."""
        return self._replica is None or self._replica.transport.rank == self.index

    def place(self, module: nn.Module) -> nn.Module:
        """A module whose parameters are on this device, and nowhere else.

        All processes of the replica call what is given back, with the same input, and get the same output; it is
        computed on this device. Gradients flow through it.
        """
        return LeaderSparse(module.to(self.device) if self.here else None, self.index, self.device, self._replica)


class LeaderSparse(nn.Module):
    """A part of a model on one of a replica's devices."""

    def __init__(self, part: nn.Module | None, index: int, device: torch.device, replica: Contract | None) -> None:
        super().__init__()
        self.part = part
        self._index, self._device, self._replica = index, device, replica

    def forward(self, *inputs: Tensor | None, **named: Tensor | None) -> Any:
        given = (inputs, named)
        wrong = next((x for x in (*inputs, *named.values()) if not isinstance(x, Tensor | None)), None)
        if wrong is not None:
            raise TypeError(f"a placed part takes tensors, and None, not {type(wrong).__name__}")
        xs = leaves(given)
        moved = [x.to(self._device) for x in xs]
        if self._replica is None:
            assert self.part is not None, "there is no other process that could have it"
            return self._computed(given, moved)
        named_too = [*map(_told, inputs), *(f"{name}={_told(x)}" for name, x in sorted(named.items()))]
        self._replica.check(f"a part on logical device {self._index}", f"with {', '.join(named_too)}")
        if self.part is None:
            # Something that needs a gradient, as the output may where it is computed.
            asks = torch.zeros((), requires_grad=torch.is_grad_enabled())
            with self._replica.held():
                made = _There.apply(self._replica, self._index, asks, *xs)  # type: ignore[no-untyped-call]
            return made[0] if len(made) == 1 else made
        entered = _Entering.apply(self._replica, self._index, *moved)  # type: ignore[no-untyped-call]
        output = self._computed(given, entered)
        made = output if isinstance(output, tuple) else (output,)
        if not all(isinstance(x, Tensor) and x.dtype in TYPES for x in made):
            raise ValueError(f"a placed part gives a tensor or a tuple of tensors, not {type(output).__name__}")
        needed = torch.is_grad_enabled() and any(x.requires_grad for x in (*made, *entered))
        with self._replica.held():
            _tell(self._replica.transport, self._index, made, needed)
        left = _Leaving.apply(len(made), *made, *entered)  # type: ignore[no-untyped-call]
        return left if isinstance(output, tuple) else left[0]

    def _computed(self, given: Nest, xs: Iterable[Tensor]) -> Any:
        assert self.part is not None, "it is computed where it is"
        inputs, named = rebuilt(given, iter(xs))
        return self.part(*inputs, **named)

    def extra_repr(self) -> str:
        return f"on logical device {self._index}"


def _told(x: Tensor | None) -> str:
    """An input, and whether others will wait for its gradient."""
    asks = x is not None and x.requires_grad and torch.is_grad_enabled()
    return f"{told(x)}{' that needs a gradient' if asks else ''}"


def check_alike(model: nn.Module, replica: Contract) -> None:
    """Parameters that several devices of a replica hold in full are one; ValueError on all if they begin otherwise."""
    whole = {name: p.detach() for name, p in model.named_parameters() if not is_dtensor(p)}
    mine = {name: [list(p.shape), _digest(p)] for name, p in whole.items()}
    replica.check("wrap()")
    with replica.held():
        there = [json.loads(told) for told in replica.transport.gather(json.dumps(mine).encode())]
    for name in dict.fromkeys(name for found in there for name in found):
        held = [found[name] for found in there if name in found]
        if any(shape == held[0][0] and digest != held[0][1] for shape, digest in held):
            raise ValueError(
                f"the devices{replica.of} hold {name!r}, and begin with other values of it: give Replicator a seed, "
                "place it on one of them (logical_device(i).place), or split it by one of torch's plans"
            )


def _digest(x: Tensor) -> str:
    return sha256(x.cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()).hexdigest()


class _Entering(torch.autograd.Function):
    """Where a part is: what its input's gradient is, the other processes hear."""

    @staticmethod
    def forward(ctx: Any, replica: Contract, source: int, *inputs: Tensor) -> Any:
        ctx.replica, ctx.source, ctx.site = replica, source, called_at()
        return tuple(x.view_as(x) for x in inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        asked = [g for g, asked in zip(gradients, ctx.needs_input_grad[2:], strict=True) if asked]
        _exchange_back(ctx, [g.contiguous() for g in asked])
        return None, None, *gradients


class _Leaving(torch.autograd.Function):
    """Makes the output depend on the input, whatever the part does: others wait for the input's gradient."""

    @staticmethod
    def forward(ctx: Any, count: int, *xs: Tensor) -> Any:
        ctx.count, ctx.entered = count, xs[count:]
        made = tuple(x.view_as(x) for x in xs[:count])
        ctx.mark_non_differentiable(*(x for x in made if not x.is_floating_point()))
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return None, *gradients, *(torch.zeros_like(x) for x in ctx.entered)


class _There(torch.autograd.Function):
    """Where a part is not: its output comes from where it is, and so does its input's gradient."""

    @staticmethod
    def forward(ctx: Any, replica: Contract, source: int, asks: Tensor, *inputs: Tensor) -> Any:
        ctx.replica, ctx.source, ctx.site = replica, source, called_at()
        ctx.inputs = [(x.shape, x.dtype, x.device) for x in inputs]
        made, asks_there = _heard(replica.transport, source)
        ctx.mark_non_differentiable(*(x for x in made if not (asks_there and x.is_floating_point())))
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        asked = ctx.needs_input_grad[3:]
        found = [
            torch.empty(shape, dtype=dtype, device=device) if wanted else None
            for (shape, dtype, device), wanted in zip(ctx.inputs, asked, strict=True)
        ]
        _exchange_back(ctx, [x for x in found if x is not None])
        return None, None, None, *found


def _exchange_back(ctx: Any, gradients: list[Tensor]) -> None:
    """Of inputs that ask for them; where none does, nobody comes here to tell, or to be told."""
    if gradients:
        ctx.replica.check(f"backward of a part on logical device {ctx.source}", site=ctx.site)
        with ctx.replica.held():
            ctx.replica.transport.broadcast(gradients, ctx.source)


TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.bool, torch.uint8)


def _tell(replica: Transport, source: int, made: tuple[Tensor, ...], asks: bool) -> None:
    """Of what shapes the output is, whether it needs a gradient, and the output."""
    shapes = [[TYPES.index(x.dtype), x.dim(), *x.shape] for x in made]
    told = torch.tensor([len(made), asks, *(n for shape in shapes for n in shape)], dtype=torch.int64)
    replica.broadcast([torch.tensor([told.numel()]), told], source)
    replica.broadcast([x.detach().contiguous() for x in made if x.numel()], source)


def _heard(replica: Transport, source: int) -> tuple[tuple[Tensor, ...], bool]:
    length = torch.zeros(1, dtype=torch.int64)
    replica.broadcast([length], source)
    told = torch.zeros(int(length), dtype=torch.int64)
    replica.broadcast([told], source)
    count, asks, *numbers = told.tolist()
    made = []
    for _ in range(count):
        kind, dim, *rest = numbers
        made.append(torch.empty(rest[:dim], dtype=TYPES[kind], device=replica.device))
        numbers = rest[dim:]
    replica.broadcast([x for x in made if x.numel()], source)
    return tuple(made), bool(asks)


def device_here(device: torch.device | str | None = None) -> torch.device:
    """The device that is asked for, or the one that this process has: a GPU, or the CPU if there is none."""
    if device is not None:
        return torch.device(device)
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
