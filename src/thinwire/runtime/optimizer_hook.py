"""An optimizer's step hooks: exchanges of a plain module."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from ..core import Rounds
from .replica_of import local
from .session import Session

ATTRIBUTE = "_thinwire_attached"  # on an optimizer


def is_attached(optimizer: Optimizer) -> bool:
    return hasattr(optimizer, ATTRIBUTE)


class Updates:
    """Runs a strategy's exchanges before and after each step of an optimizer."""

    def __init__(
        self, session: Session, optimizer: Optimizer, model: nn.Module, find_unused_parameters: bool = True
    ) -> None:
        self.session, self.optimizer, self.find_unused_parameters = session, optimizer, find_unused_parameters
        self.names = {id(p): name for name, p in model.named_parameters()}
        setattr(optimizer, ATTRIBUTE, True)
        self.handles = (
            optimizer.register_step_pre_hook(self._before),
            optimizer.register_step_post_hook(self._after),
        )

    def remove(self) -> None:
        delattr(self.optimizer, ATTRIBUTE)
        for handle in self.handles:
            handle.remove()

    def _before(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if kwargs.get("closure") is not None or any(callable(argument) for argument in args[1:]):
            raise ValueError(
                "optimizer.step(closure) is not supported: gradients are exchanged before the closure runs"
            )
        session = self.session
        self._check_unchanged(optimizer)
        self._take_shards()
        session.begin_step()
        session.count()
        session.set_lr(optimizer.param_groups[0].get("lr"))
        session.check_loss()
        session.check_gradients()
        self._exchange(self._before_update if self.find_unused_parameters else self._average_all)
        self._return_shards()

    def _before_update(self) -> Rounds:
        return self.session.strategy.before_update(self.session.replica, self.session.state)

    def _average_all(self) -> Rounds:
        """Average the gradients of all parameters, as under DDP: a missing gradient counts as zero."""
        strategy, replica = self.session.strategy.gradient_averaging, self.session.replica
        assert strategy is not None, "attach has checked it"
        gradients = {}
        for name, p in replica.parameters.items():
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            gradients[name] = p.grad
        return strategy.exchange(strategy.units(replica), gradients, replica.size, self.session.state, replica.rate)

    def _take_shards(self) -> None:
        """Give the replica this process's shards of the gradients of DTensor parameters, in the same memory."""
        replica = self.session.replica
        for name, dtensor in replica.dtensors.items():
            if dtensor.grad is not None and dtensor.grad.placements != dtensor.placements:
                dtensor.grad = dtensor.grad.redistribute(placements=dtensor.placements)
            replica.parameters[name].grad = None if dtensor.grad is None else local(dtensor.grad)

    def _return_shards(self) -> None:
        """Clear the gradients of DTensor parameters that no rank used, and set those that only other ranks used."""
        replica = self.session.replica
        for name, dtensor in replica.dtensors.items():
            gradient = replica.parameters[name].grad
            if gradient is None:  # no rank has used the parameter
                dtensor.grad = None
            elif dtensor.grad is None:  # another rank has
                dtensor.grad = type(dtensor.data).from_local(gradient, dtensor.device_mesh, dtensor.placements)

    def _check_unchanged(self, optimizer: Optimizer) -> None:
        replica = self.session.replica
        known = {id(replica.dtensors.get(name, p)) for name, p in replica.parameters.items()}
        trained = (p for settings in optimizer.param_groups for p in settings["params"] if p.requires_grad)
        added = [
            self.names.get(id(p), "a parameter that the model did not have") for p in trained if id(p) not in known
        ]
        if added:
            raise ValueError(
                f"parameters were added to the optimizer after thinwire was attached: {', '.join(added)}. "
                "They would not be exchanged: detach() and attach() again"
            )

    def _after(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        session = self.session
        self._exchange(lambda: session.strategy.after_update(session.replica, session.state))
        session.end_step()
        with torch.no_grad():
            session.launch()

    def _exchange(self, make: Callable[[], Rounds]) -> None:
        session, parameters = self.session, self.session.replica.parameters

        @torch.no_grad()
        def exchange() -> None:
            session.exchange(make, lambda name: parameters[name].grad)

        if session.quiet:
            exchange()  # here, as the queue may be busy with the exchange in flight
        else:
            session.worker.submit(exchange).result()
