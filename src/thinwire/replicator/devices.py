"""The logical devices of one replica, and model parts that are placed on one of them."""

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
from .nests import Nest, description, leaves, rebuilt


class LogicalDevice:
    """One of a replica's devices: a separate process, or a device of this process."""

    def __init__(self, index: int, device: torch.device, replica: Contract | None) -> None:
        self.index, self.device = index, device
        self._replica = replica  # between the processes of this replica; None if it is one process

    def __repr__(self) -> str:
        return f"<logical device {self.index}, {'here' if self.here else 'in another process'}, {self.device}>"

    @property
    def here(self) -> bool:
        """Whether this process owns the device."""
        return self._replica is None or self._replica.transport.rank == self.index

    def place(self, module: nn.Module) -> nn.Module:
        """A module whose parameters are on this device only.

        All processes of the replica must call the returned module, with the same inputs. It is computed on this device,
        and all get the same output. Gradients flow through it.
        """
        return PlacedModule(module.to(self.device) if self.here else None, self.index, self.device, self._replica)


class PlacedModule(nn.Module):
    """A part of a model on one of a replica's logical devices."""

    def __init__(self, part: nn.Module | None, index: int, device: torch.device, replica: Contract | None) -> None:
        super().__init__()
        self.part = part
        self._index, self._device, self._replica = index, device, replica

    def forward(self, *inputs: Tensor | None, **named: Tensor | None) -> Any:
        arguments = (inputs, named)
        wrong = next((x for x in (*inputs, *named.values()) if not isinstance(x, Tensor | None)), None)
        if wrong is not None:
            raise TypeError(f"a placed part takes tensors and None, not {type(wrong).__name__}")
        xs = leaves(arguments)
        moved = [x.to(self._device) for x in xs]
        if self._replica is None:
            assert self.part is not None, "the only process of a replica has all parts"
            return self._computed(arguments, moved)
        described = [*map(_described, inputs), *(f"{name}={_described(x)}" for name, x in sorted(named.items()))]
        self._replica.check(f"a part on logical device {self._index}", f"with {', '.join(described)}")
        if self.part is None:
            # An input that requires a gradient, as the output may require one because of the part's parameters.
            anchor = torch.zeros((), requires_grad=torch.is_grad_enabled())
            with self._replica.guarded():
                outputs = _Remote.apply(self._replica, self._index, anchor, *xs)  # type: ignore[no-untyped-call]
            return outputs[0] if len(outputs) == 1 else outputs
        entered = _SendInputGradients.apply(self._replica, self._index, *moved)  # type: ignore[no-untyped-call]
        output = self._computed(arguments, entered)
        outputs = output if isinstance(output, tuple) else (output,)
        if not all(isinstance(x, Tensor) and x.dtype in TYPES for x in outputs):
            raise ValueError(f"a placed part must return a tensor or a tuple of tensors, not {type(output).__name__}")
        requires_grad = torch.is_grad_enabled() and any(x.requires_grad for x in (*outputs, *entered))
        with self._replica.guarded():
            _send_outputs(self._replica.transport, self._index, outputs, requires_grad)
        results = _DependOnInputs.apply(len(outputs), *outputs, *entered)  # type: ignore[no-untyped-call]
        return results if isinstance(output, tuple) else results[0]

    def _computed(self, arguments: Nest, xs: Iterable[Tensor]) -> Any:
        assert self.part is not None, "only the process that owns the part computes it"
        inputs, named = rebuilt(arguments, iter(xs))
        return self.part(*inputs, **named)

    def extra_repr(self) -> str:
        return f"on logical device {self._index}"


def _described(x: Tensor | None) -> str:
    """An input as text, with whether the other processes will wait for its gradient."""
    requires_grad = x is not None and x.requires_grad and torch.is_grad_enabled()
    return f"{description(x)}{' that needs a gradient' if requires_grad else ''}"


def check_equal_copies(model: nn.Module, replica: Contract) -> None:
    """ValueError on all devices of a replica if a parameter that several hold in full has different initial values."""
    full = {name: p.detach() for name, p in model.named_parameters() if not is_dtensor(p)}
    mine = {name: [list(p.shape), _digest(p)] for name, p in full.items()}
    replica.check("wrap()")
    with replica.guarded():
        by_device = [json.loads(text) for text in replica.transport.gather(json.dumps(mine).encode())]
    for name in dict.fromkeys(name for found in by_device for name in found):
        copies = [found[name] for found in by_device if name in found]
        if any(shape == copies[0][0] and digest != copies[0][1] for shape, digest in copies):
            raise ValueError(
                f"the devices{replica.of} have different initial values of {name!r}: give Replicator a seed, place the "
                "parameter on one device (logical_device(i).place), or split it by one of torch's plans"
            )


def _digest(x: Tensor) -> str:
    return sha256(x.cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()).hexdigest()


class _SendInputGradients(torch.autograd.Function):
    """On the process that owns a part: the identity; in backward, sends the inputs' gradients to the others."""

    @staticmethod
    def forward(ctx: Any, replica: Contract, source: int, *inputs: Tensor) -> Any:
        ctx.replica, ctx.source, ctx.site = replica, source, called_at()
        return tuple(x.view_as(x) for x in inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        needed = [g for g, is_needed in zip(gradients, ctx.needs_input_grad[2:], strict=True) if is_needed]
        _broadcast_gradients(ctx, [g.contiguous() for g in needed])
        return None, None, *gradients


class _DependOnInputs(torch.autograd.Function):
    """Makes the outputs depend on the inputs even if the part detaches them: others wait for the inputs' gradients."""

    @staticmethod
    def forward(ctx: Any, count: int, *xs: Tensor) -> Any:
        ctx.count, ctx.entered = count, xs[count:]
        outputs = tuple(x.view_as(x) for x in xs[:count])
        ctx.mark_non_differentiable(*(x for x in outputs if not x.is_floating_point()))
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return None, *gradients, *(torch.zeros_like(x) for x in ctx.entered)


class _Remote(torch.autograd.Function):
    """On the other processes: receives the outputs of a part, and in backward the inputs' gradients."""

    @staticmethod
    def forward(ctx: Any, replica: Contract, source: int, anchor: Tensor, *inputs: Tensor) -> Any:
        ctx.replica, ctx.source, ctx.site = replica, source, called_at()
        ctx.inputs = [(x.shape, x.dtype, x.device) for x in inputs]
        outputs, requires_grad = _received_outputs(replica.transport, source)
        ctx.mark_non_differentiable(*(x for x in outputs if not (requires_grad and x.is_floating_point())))
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        needed = ctx.needs_input_grad[3:]
        found = [
            torch.empty(shape, dtype=dtype, device=device) if is_needed else None
            for (shape, dtype, device), is_needed in zip(ctx.inputs, needed, strict=True)
        ]
        _broadcast_gradients(ctx, [x for x in found if x is not None])
        return None, None, None, *found


def _broadcast_gradients(ctx: Any, gradients: list[Tensor]) -> None:
    """Send or receive the gradients of the inputs that need them; without any, no process calls this."""
    if gradients:
        ctx.replica.check(f"backward of a part on logical device {ctx.source}", site=ctx.site)
        with ctx.replica.guarded():
            ctx.replica.transport.broadcast(gradients, ctx.source)


TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.bool, torch.uint8)


def _send_outputs(replica: Transport, source: int, outputs: tuple[Tensor, ...], requires_grad: bool) -> None:
    """Send the outputs' dtypes and shapes, whether they require gradients, and the outputs."""
    shapes = [[TYPES.index(x.dtype), x.dim(), *x.shape] for x in outputs]
    header = torch.tensor([len(outputs), requires_grad, *(n for shape in shapes for n in shape)], dtype=torch.int64)
    replica.broadcast([torch.tensor([header.numel()]), header], source)
    replica.broadcast([x.detach().contiguous() for x in outputs if x.numel()], source)


def _received_outputs(replica: Transport, source: int) -> tuple[tuple[Tensor, ...], bool]:
    length = torch.zeros(1, dtype=torch.int64)
    replica.broadcast([length], source)
    header = torch.zeros(int(length), dtype=torch.int64)
    replica.broadcast([header], source)
    count, requires_grad, *numbers = header.tolist()
    outputs = []
    for _ in range(count):
        kind, dim, *rest = numbers
        outputs.append(torch.empty(rest[:dim], dtype=TYPES[kind], device=replica.device))
        numbers = rest[dim:]
    replica.broadcast([x for x in outputs if x.numel()], source)
    return tuple(outputs), bool(requires_grad)


def default_device(device: torch.device | str | None = None) -> torch.device:
    """The given device; by default this process's GPU, or the CPU without one."""
    if device is not None:
        return torch.device(device)
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
