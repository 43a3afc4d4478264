"""What `attach` gives back."""

from collections.abc import Callable, Iterable
from os import PathLike
from typing import Any

from torch import Tensor, nn

from .core.layer_report import Layer
from .core.outcome import Learning
from .methods import notation_of
from .runtime.averaging import averaged, centered, exported, led, refresh_batchnorm, whole
from .runtime.session import Session
from .strategies.ab_training import LowRankLayer
from .transports import Meter


class Handle:
    """A method at work: what it costs, what it remembers, and how to stop it.

    Examples:
        >>> import torch
        >>> import thinwire
        >>> from thinwire.simulate import InProcessCluster
        >>> def attached():
        ...     model = torch.nn.Linear(100, 100)
        ...     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        ...     return thinwire.attach(model, "fp16", optimizer=optimizer)
        >>> handle, _ = InProcessCluster(2).run(attached)
        >>> handle
        <thinwire Average(Cast('float16')) on rank 0 of 2>
        >>> handle.ranks, handle.meter.steps
        ((0, 1), 0)
    """

    def __init__(self, session: Session, model: nn.Module, detach: Callable[[], None]) -> None:
        self._session, self._model, self._detach = session, model, detach
        self.meter: Meter = session.meter

    def __repr__(self) -> str:
        return f"<thinwire {self.method} on rank {self._session.transport.rank} of {self._session.transport.size}>"

    @property
    def method(self) -> str:
        """The notation of what is attached: without lost ranks, its graph may be another."""
        return notation_of(self._session.strategy)

    @property
    def ranks(self) -> tuple[int, ...]:
        """Those who are still here, by the numbers they began with."""
        return self._session.transport.names

    @property
    def serves(self) -> bool:
        """Whether this rank only serves: it calls `optimizer.step()` as often as the others, without a backward."""
        return self._session.replica.rank in self._session.strategy.dedicated_servers

    @property
    def will_communicate(self) -> bool:
        """Whether anything may be said around the next update: methods that meet now and then are silent in between."""
        return self._session.strategy.will_communicate(self._session.meter.steps + 1)

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The groups that ranks are in, for methods that have several."""
        replica = self._session.replica
        return self._session.strategy.groups_of(replica.size, replica.hosts)

    def factored(self) -> dict[str, LowRankLayer]:
        """What those layers are at the moment that are factored at times, by name: rows, columns and rank."""
        return self._session.factored()

    def average(self) -> nn.Module:
        """A copy of the model with the mean of all ranks' parameters and buffers, for evaluating or saving.

        All ranks call it together, and all get the same. What is on its way is finished first; but for that, training
        goes on as if nothing had been asked. `meter.consensus` tells how far replicas were from that mean.
        """
        return averaged(self._session, self._model)

    def leader(self) -> nn.Module:
        """A copy of the model of the rank with the lowest loss, for methods that have leaders; as `average()`."""
        return led(self._session, self._model)

    def center(self) -> nn.Module:
        """A copy of the model with what replicas are drawn to, for methods that have such a center."""
        return centered(self._session, self._model)

    def merge(self) -> nn.Module:
        """A copy of the model in plain, whole layers with what all groups agree on, for methods that factor layers.

        All ranks call it together, and all get the same; training goes on as if nothing had been asked.
        """
        return whole(self._session, self._model)

    def export(self, path: str | PathLike[str]) -> dict[str, int]:
        """Write that model in thin layers where these are smaller; returns their ranks.

        All ranks call it together, rank 0 writes. `thinwire.load_low_rank(model, path)` makes a model of it that has
        torch's own layers only.
        """
        return exported(self._session, self._model, path)

    def report_loss(self, loss: Tensor | float) -> None:
        """Report the loss of this step before `optimizer.step()`; methods that choose a leader need it."""
        self._session.observe(loss)

    def set_lr(self, lr: Tensor | float) -> None:
        """Set the learning rate before `backward()`, for `ErrorFeedback(..., by_rate=True)`.

        With a plain module it is read from the first parameter group of the optimizer.
        """
        self._session.at_rate(lr)

    def refresh_batchnorm(self, batches: Iterable[Any], model: nn.Module | None = None) -> None:
        """Estimate the statistics of batch norms anew from these batches, by default those of the model itself.

        Whoever averages parameters may want it: `mean = handle.average(); handle.refresh_batchnorm(loader, mean)`. A
        batch is what the model takes, or a tuple whose first is, or a dict of keyword arguments.
        """
        refresh_batchnorm(self._model if model is None else model, batches)

    def layers(self) -> dict[str, Layer]:
        """What this rank has said of each layer so far, and how much it has not. Computed when asked for."""
        return self._session.layers()

    def learning(self) -> dict[str, Learning]:
        """How far off learned codes were after the last step, and whether they are being learned."""
        return self._session.learning()

    def before_asking(self, act: Callable[[str], None]) -> None:
        """Call something before all ranks are asked together, as by `average()`, with what they are asked for."""
        self._session.before_asking = act

    def leave(self, problem: BaseException) -> None:
        """Stop, and let those know why who wait for this rank; nothing can be said here any more."""
        if self._session.talks.broken is None:
            self._session.talks.leave(problem)

    def state_dict(self) -> dict[str, Any]:
        """What this rank remembers, as plain tensors and numbers. Each rank saves its own."""
        return self._session.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave this rank."""
        self._session.load_state_dict(state)

    def detach(self) -> None:
        """Stop: from now on the model trains as if thinwire had never been attached."""
        detach, self._detach = self._detach, lambda: None
        detach()
        try:
            self._session.close()
        finally:
            self._session.release()
