"""Models and their optimizers, kept in step with those of the other replicas by the method."""

import warnings
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from ..attach import attach
from ..core import Strategy
from ..handle import Handle
from ..methods import notation_of, strategy_of
from ..strategies import check_placed
from ..transports import Transport, ddp_of
from .contract import Contract
from .devices import check_alike


class Wrapping:
    """Attaches the method, and compares what replicas do with what is wrapped."""

    def __init__(self, strategy: Strategy, replicas: Transport, contract: Contract, devices: Contract | None) -> None:
        self.strategy, self.replicas, self.contract = strategy, replicas, contract
        self.devices = devices  # of this replica, if these are processes of their own
        self._count = 0
        self._for_ddp: Transport | None = None
        self._hooks: list[RemovableHandle] = []
        self._unused: dict[str, tuple[Handle, list[nn.Parameter]]] = {}  # what is not known to be used yet

    def wrap(
        self, model: nn.Module, optimizer: Optimizer, overlap: bool, settings: dict[str, Any]
    ) -> tuple[nn.Module, Handle]:
        """What to call in the model's place, and the handle."""
        if not (isinstance(model, nn.Module) and isinstance(optimizer, Optimizer)):
            there = f"{type(model).__name__} and {type(optimizer).__name__}"
            raise TypeError(f"wrap() takes a model and its optimizer, in this order, not {there}")
        self.contract.check("wrap()", _told(self.strategy, overlap, settings))
        if self.devices is not None:
            check_alike(model, self.devices)
        number, strategy = f"of wrap() number {self._count + 1}", self.strategy
        if self.replicas.size == 1 and _cannot_be_alone(strategy):
            told = notation_of(strategy)
            warnings.warn(f"{told} has no effect: there is but one replica", stacklevel=3)
            strategy = strategy_of("dense")
        averages = (
            strategy.gradient_averaging is not None and not strategy.dedicated_servers
        )  # as DDP would, on all ranks
        if overlap and averages and (ddp := self._ddp(model)) is not None:
            handle = attach(ddp, strategy, **settings)
            self._hooks.append(ddp.register_forward_pre_hook(lambda module, _: self._before_forward(module, number)))
            model = ddp
        else:
            said = {"find_unused_parameters": False} if overlap and averages else {}
            # Before attach's own.
            check = optimizer.register_step_pre_hook(lambda *_: self._before_step(handle, number))
            try:
                handle = attach(model, strategy, optimizer=optimizer, group=self.replicas, **(said | settings))
            except BaseException:
                check.remove()
                raise
            self._hooks.append(check)
        self._count += 1
        self._unused[number] = handle, list(model.parameters())
        handle.before_collective(lambda what: self.contract.check(what, number))
        return model, handle

    def warn_of_unused(self) -> None:
        """Once, if what was wrapped has gradients and its optimizer has never made a step: nothing was said of it."""
        for number, (handle, parameters) in list(self._unused.items()):
            if handle.meter.steps or any(p.grad is not None for p in parameters):
                del self._unused[number]
                if not handle.meter.steps:
                    warnings.warn(
                        f"the optimizer {number} has made no step, though its model has gradients: replicas train "
                        "apart if another one does. Make steps with the optimizer that wrap() gave back",
                        stacklevel=4,
                    )

    def close(self) -> None:
        self._unused.clear()
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        if self._for_ddp is not None:
            self._for_ddp.close()

    def _ddp(self, model: nn.Module) -> nn.Module | None:
        """The model in torch's DDP, where replicas are processes."""
        # In a group that nothing else speaks in: DDP holds it, and its connections would be open after leaving it.
        self._for_ddp = self._for_ddp or self.replicas.duplicate()
        return ddp_of(model, self._for_ddp)

    def _before_forward(self, module: nn.Module, number: str) -> None:
        if module.training and torch.is_grad_enabled():
            self.contract.check("forward()", number)

    def _before_step(self, handle: Handle, number: str) -> None:
        # Who speaks with neighbors only does not wait for all, and in silent steps nobody waits for anybody.
        if handle.will_communicate and not self.strategy.survivable:
            self.contract.check("optimizer.step()", number)


def _told(strategy: Strategy, overlap: bool, settings: dict[str, Any]) -> str:
    """How something is wrapped. Of what has no text that is the same everywhere, its type is told."""
    plain = (str, int, float, bool, type(None))
    said = [f"{name}={x!r}" if isinstance(x, plain) else f"{name}: {type(x).__name__}" for name, x in settings.items()]
    return ", ".join([f"by {notation_of(strategy)}", *(["overlap=True"] if overlap else []), *sorted(said)])


def _cannot_be_alone(strategy: Strategy) -> bool:
    try:
        check_placed(strategy, 1)
    except ValueError:
        return True
    return False
