"""The handle that `attach` returns."""

from collections.abc import Callable, Iterable
from os import PathLike
from typing import Any

from torch import Tensor, nn

from .core.layer_report import Layer
from .core.outcome import Learning
from .methods import notation_of
from .runtime.averaging import (
    average_model,
    center_model,
    export_low_rank,
    full_rank_model,
    leader_model,
    refresh_batchnorm,
)
from .runtime.session import Session
from .strategies.ab_training import LowRankLayer
from .transports import Meter


class Handle:
    """An attached method: its meter, its state, models to evaluate or save, and `detach()`.

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
        """The notation of the attached method. Its graph may change when ranks fail."""
        return notation_of(self._session.strategy)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that have not failed, by their original numbers."""
        return self._session.transport.original_ranks

    @property
    def serves(self) -> bool:
        """Whether this rank is a dedicated server: it calls `optimizer.step()` like the others, without a backward."""
        return self._session.replica.rank in self._session.strategy.dedicated_servers

    @property
    def will_communicate(self) -> bool:
        """Whether anything may be sent around the next update; false for local steps between two synchronizations."""
        return self._session.strategy.will_communicate(self._session.meter.steps + 1)

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The groups of ranks, for methods that have several; else empty."""
        replica = self._session.replica
        return self._session.strategy.groups_of(replica.size, replica.hosts)

    def factored(self) -> dict[str, LowRankLayer]:
        """The layers that are factored at the moment, by name: rows, columns and rank. Empty for most methods."""
        return self._session.factored()

    def average(self) -> nn.Module:
        """A copy of the model with the mean of all ranks' parameters and buffers, for evaluating or saving.

        Collective: all ranks must call it, and all get the same. It finishes an exchange in flight first, and does not
        affect training otherwise. It sets `meter.consensus` to the consensus distance.
        """
        return average_model(self._session, self._model)

    def leader(self) -> nn.Module:
        """A copy of the model of the rank with the lowest loss, for methods with a leader. Collective."""
        return leader_model(self._session, self._model)

    def center(self) -> nn.Module:
        """A copy of the model with the center variable that replicas are pulled to, for methods with a center."""
        return center_model(self._session, self._model)

    def merge(self) -> nn.Module:
        """A copy of the model in full-rank layers with the weights that all groups agree on.

        For methods that factor layers. Collective: all ranks must call it, and all get the same. It does not affect
        training.
        """
        return full_rank_model(self._session, self._model)

    def export(self, path: str | PathLike[str]) -> dict[str, int]:
        """Write the model of `merge()` to a file, with low-rank layers where these are smaller; returns their ranks.

        Collective: all ranks must call it, and rank 0 writes. `thinwire.load_low_rank(model, path)` loads the file into
        a model of standard torch layers.
        """
        return export_low_rank(self._session, self._model, path)

    def report_loss(self, loss: Tensor | float) -> None:
        """Report the loss of this step before `optimizer.step()`; methods that choose a leader need it."""
        self._session.report_loss(loss)

    def set_lr(self, lr: Tensor | float) -> None:
        """Set the learning rate before `backward()`, for `ErrorFeedback(..., by_rate=True)`.

        With a plain module, it is read from the first parameter group of the optimizer instead.
        """
        self._session.set_lr(lr)

    def refresh_batchnorm(self, batches: Iterable[Any], model: nn.Module | None = None) -> None:
        """Estimate batch norm statistics again from these batches, of `model` or by default of the attached model.

        It is useful for averaged parameters: `mean = handle.average(); handle.refresh_batchnorm(loader, mean)`. A batch
        is the model's input, a tuple or list that begins with it, or a dict of keyword arguments.
        """
        refresh_batchnorm(self._model if model is None else model, batches)

    def layers(self) -> dict[str, Layer]:
        """Bytes that this rank has sent for each layer so far, and the norm of its residual, computed by this call."""
        return self._session.layers()

    def learning(self) -> dict[str, Learning]:
        """The error of each learned code after the last step, and whether it is being learned."""
        return self._session.learning()

    def before_collective(self, function: Callable[[str], None]) -> None:
        """Call a function before each collective call such as `average()`, with that call's name."""
        self._session.before_collective = function

    def abort(self, problem: BaseException) -> None:
        """Stop this rank, and report the reason to ranks that wait for it. Nothing can be exchanged afterwards."""
        if self._session.exchanges.broken is None:
            self._session.exchanges.abort(problem)

    def state_dict(self) -> dict[str, Any]:
        """The state of this rank, as plain tensors and numbers. Each rank saves its own."""
        return self._session.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned on this rank."""
        self._session.load_state_dict(state)

    def detach(self) -> None:
        """Stop: from now on, the model trains as if thinwire had never been attached."""
        detach, self._detach = self._detach, lambda: None
        detach()
        try:
            self._session.close()
        finally:
            self._session.release()
