"""Wrapping models and optimizers, so that the method synchronizes them with the other replicas."""

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
from .devices import check_equal_copies


class Wrapping:
    """Attaches the method to models, and compares the replicas' calls on wrapped models."""

    def __init__(self, strategy: Strategy, replicas: Transport, contract: Contract, devices: Contract | None) -> None:
        self.strategy, self.replicas, self.contract = strategy, replicas, contract
        self.devices = devices  # between the devices of this replica, if each is a rank
        self._count = 0
        self._for_ddp: Transport | None = None
        self._hooks: list[RemovableHandle] = []
        self._unused: dict[str, tuple[Handle, list[nn.Parameter]]] = {}  # wrapped models that have made no step yet

    def wrap(
        self, model: nn.Module, optimizer: Optimizer, overlap: bool, settings: dict[str, Any]
    ) -> tuple[nn.Module, Handle]:
        """The model to call instead of the given one, and the handle."""
        if not (isinstance(model, nn.Module) and isinstance(optimizer, Optimizer)):
            types = f"{type(model).__name__} and {type(optimizer).__name__}"
            raise TypeError(f"wrap() takes a model and its optimizer, in this order, not {types}")
        self.contract.check("wrap()", _description(self.strategy, overlap, settings))
        if self.devices is not None:
            check_equal_copies(model, self.devices)
        number, strategy = f"of wrap() number {self._count + 1}", self.strategy
        if self.replicas.size == 1 and _needs_several_ranks(strategy):
            warnings.warn(f"{notation_of(strategy)} has no effect: there is only one replica", stacklevel=3)
            strategy = strategy_of("dense")
        averages = (
            strategy.gradient_averaging is not None and not strategy.dedicated_servers
        )  # as DDP would, on all ranks
        if overlap and averages and (ddp := self._ddp(model)) is not None:
            handle = attach(ddp, strategy, **settings)
            self._hooks.append(ddp.register_forward_pre_hook(lambda module, _: self._before_forward(module, number)))
            model = ddp
        else:
            defaults = {"find_unused_parameters": False} if overlap and averages else {}
            # Registered before attach's own hook, so that it runs first.
            check = optimizer.register_step_pre_hook(lambda *_: self._before_step(handle, number))
            try:
                handle = attach(model, strategy, optimizer=optimizer, group=self.replicas, **(defaults | settings))
            except BaseException:
                check.remove()
                raise
            self._hooks.append(check)
        self._count += 1
        self._unused[number] = handle, list(model.parameters())
        handle.before_collective(lambda call: self.contract.check(call, number))
        return model, handle

    def warn_of_unused(self) -> None:
        """Warn once if a wrapped model has gradients but its optimizer has never stepped: nothing was exchanged."""
        for number, (handle, parameters) in list(self._unused.items()):
            if handle.meter.steps or any(p.grad is not None for p in parameters):
                del self._unused[number]
                if not handle.meter.steps:
                    warnings.warn(
                        f"the optimizer {number} has made no step, though its model has gradients: replicas diverge if "
                        "another optimizer steps. Use the optimizer that wrap() returned",
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
        # A separate group: DDP keeps a reference to it, so its connections stay open after leave().
        self._for_ddp = self._for_ddp or self.replicas.duplicate()
        return ddp_of(model, self._for_ddp)

    def _before_forward(self, module: nn.Module, number: str) -> None:
        if module.training and torch.is_grad_enabled():
            self.contract.check("forward()", number)

    def _before_step(self, handle: Handle, number: str) -> None:
        # Decentralized methods do not wait for all ranks, and in steps without communication no rank waits.
        if handle.will_communicate and not self.strategy.survivable:
            self.contract.check("optimizer.step()", number)


def _description(strategy: Strategy, overlap: bool, settings: dict[str, Any]) -> str:
    """The arguments of wrap() as text; objects whose repr may differ between replicas are given by their type."""
    plain = (str, int, float, bool, type(None))
    described = [
        f"{name}={x!r}" if isinstance(x, plain) else f"{name}: {type(x).__name__}" for name, x in settings.items()
    ]
    return ", ".join([f"by {notation_of(strategy)}", *(["overlap=True"] if overlap else []), *sorted(described)])


def _needs_several_ranks(strategy: Strategy) -> bool:
    try:
        check_placed(strategy, 1)
    except ValueError:
        return True
    return False
