"""Write one replica, run it anywhere."""

import atexit
import os
from collections.abc import Callable, Generator, Iterable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn
from torch.optim import Optimizer

from ..core import Codec, Reducer, Strategy
from ..handle import Handle
from ..methods import notation_of, strategy_of
from ..transports import InProcessTransport, Meter, end_processes, seed_all, transport_here
from . import checkpoint_files as checkpoints
from . import rerun
from .checkpoint_files import Kept
from .context import Context
from .contract import Contract
from .devices import device_here
from .inputs import Inputs
from .nests import detached
from .shutdown import leave
from .training_state import Begun, Training
from .wrapped_model import Wrapping

Step = Callable[[Context, Any], Any]
Input = Callable[[Context], Iterable[Any]]
Stepping = TypeVar("Stepping", bound=Optimizer)


class Replicator:
    """Runs one replica's step on one process or many, with any method between the replicas.

    A script that makes one is run as `python train.py`, `thinwire run train.py --ranks 4` or `torchrun ... train.py`.
    Nothing is averaged but by the method of what is wrapped, and by what the step itself asks of the others.

    `method` is as for `attach`; by default "dense". The launcher's goes before it (`thinwire run --method`).
    `replicas` is how many the training has. By default as many as were launched; if it was launched alone, so many run
    in this one process, in turns, with the same results.
    `devices_per_replica` is how many ranks a replica is split over.
    `seed` seeds Python's, numpy's and torch's generators, otherwise on each replica.
    `checked` compares every call with those of the other replicas before it: a short message to each. Without, replicas
    that are out of step may wait forever.

    Examples:
        >>> import torch
        >>> import thinwire
        >>> from thinwire.simulate import InProcessCluster
        >>> def script():  # as a file, it runs on any number of processes
        ...     repl = thinwire.Replicator("fp16", seed=1)
        ...     model = torch.nn.Linear(10, 1)
        ...     model, optimizer = repl.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
        ...     def step(ctx, batch):
        ...         optimizer.zero_grad()
        ...         model(batch).square().mean().backward()
        ...         optimizer.step()
        ...     repl.run(step, lambda ctx: (torch.randn(4, 10) for _ in range(3)), steps=3)
        ...     return repl.step, model.weight.sum().item()
        >>> (steps, first), (_, second) = InProcessCluster(2).run(script)
        >>> steps, first == second
        (3, True)
    """

    VARIABLE = "THINWIRE_METHOD"  # of the environment, where the launcher's method is

    def __init__(
        self,
        method: str | Codec | Reducer | Strategy | None = None,
        *,
        replicas: int | None = None,
        devices_per_replica: int = 1,
        seed: int | None = None,
        checked: bool = True,
        device: torch.device | str | None = None,
    ) -> None:
        self.strategy = strategy_of(os.environ.get(self.VARIABLE) or ("dense" if method is None else method))
        if replicas is not None and replicas < 1:
            raise ValueError(f"a training has 1 replica or more, not {replicas!r}")
        if devices_per_replica < 1:
            raise ValueError(f"a replica has 1 device or more, not {devices_per_replica!r}")
        here = device_here(device)
        world, began = transport_here()
        if began:
            atexit.register(end_processes)
        alone = world.size == 1 and (replicas or 1) > 1
        if alone or (isinstance(world, InProcessTransport) and world.size > 1):
            rerun.check_not_imported()
        if alone:
            rerun.as_ranks((replicas or 1) * devices_per_replica)
        split = devices_per_replica if world.size > 1 else 1  # a process that is alone has all devices
        if world.size % split or (replicas is not None and world.size != replicas * split):
            wanted = f"{replicas} replicas" if replicas is not None else "replicas"
            raise ValueError(
                f"{world.size} ranks were launched, which are not {wanted} of {devices_per_replica} devices each"
            )
        rank, size = world.rank, world.size
        across = world if split == 1 else world.among(tuple(range(rank % split, size, split)))
        within = None if split == 1 else world.among(tuple(range(rank - rank % split, rank - rank % split + split)))
        self._world, self._across, self._within = world, across, within
        self._contract = Contract(across, checked)
        self._inner = None if within is None else Contract(within, checked, "device", f" of replica {across.rank}")
        self.context = Context(world, across, self._inner, self._contract, here, devices_per_replica)
        self._wrapping = Wrapping(self.strategy, across, self._contract, self._inner)
        self._training = Training(world, self.method, across.meter)
        self._save: Callable[[], None] | None = None  # within a run that is saved
        if seed is not None:
            seed_all(seed * 2**16 + across.rank)  # generators on the CPU use 32 bits of it

    def __repr__(self) -> str:
        return f"<Replicator: replica {self.rank} of {self.num_replicas}, {self.method}>"

    @property
    def rank(self) -> int:
        """The number of this replica."""
        return self.context.rank

    @property
    def num_replicas(self) -> int:
        return self.context.num_replicas

    @property
    def method(self) -> str:
        return notation_of(self.strategy)

    @property
    def handles(self) -> list[Handle]:
        """Of what is wrapped, in that order."""
        return self._training.handles

    @property
    def step(self) -> int:
        """How many steps have been made."""
        return self._training.step

    @property
    def meter(self) -> Meter:
        """Of what replicas ask of each other beside the method, whose meters the handles have."""
        return self._across.meter

    def wrap(
        self, model: nn.Module, optimizer: Stepping, *, overlap: bool = False, **settings: Any
    ) -> tuple[nn.Module, Stepping]:
        """The model and its optimizer, kept in step with the other replicas by the method.

        What there is to say is said as `optimizer.step()` begins or ends. With `overlap`, methods that average
        gradients say it during `backward()`, where replicas are processes: there the model is wrapped in torch's DDP,
        which wants one forward for each backward, and every parameter used. `settings` are those of `attach`.
        """
        wrapped, handle = self._wrapping.wrap(model, optimizer, overlap, settings)
        self._training.wrap(handle, model, optimizer)
        return wrapped, optimizer

    def close(self) -> None:
        """Stop: what was wrapped trains on by itself, and another Replicator may take the place of this one."""
        for handle in self.handles:
            handle.detach()
        self.handles.clear()
        self._wrapping.close()
        used = self._world, self._across, self._within
        for transport in {id(transport): transport for transport in used if transport is not None}.values():
            transport.close()

    def keep(self, **what: Kept) -> None:
        """Save these in checkpoints, too: schedules, averages of weights, all that has a state_dict."""
        self._training.keep(what)

    def run(
        self,
        step_fn: Step,
        input_fn: Input,
        steps: int | None = None,
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        every: int | None = None,
        keep: int = 2,
    ) -> list[Any]:
        """Make steps, each with the next of this replica's inputs; returns what the step function returned, in order.

        With `checkpoint`, a folder, everything is saved there after each `every` steps and at the end, and a script
        that is started again goes on from it: lists begin with the first step that was made this time. Several runs,
        such as epochs, may be saved in one folder. The newest `keep` checkpoints are kept.
        """
        return list(self.iterate(step_fn, input_fn, steps, checkpoint=checkpoint, every=every, keep=keep))

    def iterate(
        self,
        step_fn: Step,
        input_fn: Input,
        steps: int | None = None,
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        every: int | None = None,
        keep: int = 2,
    ) -> Generator[Any, None, None]:
        """As `run`, one result after the other; between two of them, `save()` may be called."""
        for what, given in (("step_fn(context, batch)", step_fn), ("input_fn(context)", input_fn)):
            if not callable(given):
                raise TypeError(f"run() takes a function, {what}, not a {type(given).__name__}")
        if steps is not None and steps < 0:
            raise ValueError(f"a run has 0 steps or more, not {steps!r}")
        if every is not None and (checkpoint is None or every < 1):
            raise ValueError(f"every={every!r} takes a folder (checkpoint=...), and is 1 or more")
        if keep < 1:
            raise ValueError(f"keep takes 1 checkpoint or more, not {keep!r}")
        folder = None if checkpoint is None else Path(checkpoint).resolve()
        began = self.step
        try:
            told = "until inputs end" if steps is None else f"of {steps} steps"
            for contract in self._contracts:
                contract.check("run()", f"{told}, saved every {every} steps" if folder is not None else told)
            run = Begun(None) if folder is None else self._training.begin(folder)
            if run.past:
                return
            began = began if run.inputs is None else run.inputs["began"]
            seed = self._drawn_seed() if run.inputs is None else run.inputs["seed"]
            inputs, first = Inputs(lambda: input_fn(self.context), seed, self.rank, run.inputs), self.step
            self._save = None if folder is None else partial(self._saved, folder, inputs, began, keep)
            if self._contract.compares:
                inputs.check_lengths(self.context, steps)
            while steps is None or self.step - began < steps:
                try:
                    batch = inputs.next()
                except StopIteration:
                    break
                outcome = detached(step_fn(self.context, batch))
                self._training.step += 1
                if every and self.step % every == 0 and self.step - began != steps:
                    self.save()
                yield outcome
            if all(len(handle.ranks) == self.num_replicas for handle in self.handles):  # and none was gone on without
                self._contract.check("the end of run()", f"after {self.step - began} steps")
            if self.step > first:
                self._wrapping.warn_of_unused()
            if folder is not None and self.step > first:
                self.save()
        except GeneratorExit:
            raise
        except BaseException as error:
            self._leave(error)
            raise
        finally:
            self._save = None

    def save(self) -> None:
        """Save a checkpoint now, between two steps of `iterate(..., checkpoint=...)`. All replicas call it together."""
        if self._save is None:
            raise RuntimeError("save() is for the time between two steps of iterate(..., checkpoint=a folder)")
        self._save()

    def _drawn_seed(self) -> int:
        """Of this replica's generator; what is placed on a device of it may draw there, and nowhere else."""
        seed = torch.randint(2**31, (1,))
        if self._inner is not None:
            with self._inner.held():
                self._inner.transport.broadcast([seed], 0)
        return int(seed)

    def _leave(self, problem: BaseException) -> None:
        ways = [*(contract.leave for contract in self._contracts), *(handle.leave for handle in self.handles)]
        leave(problem, self._world, ways)

    @property
    def _contracts(self) -> list[Contract]:
        return [self._contract] if self._inner is None else [self._contract, self._inner]

    def _saved(self, folder: Path, inputs: Inputs, began: int, keep: int) -> None:
        self._training.save(folder, inputs.state_dict() | {"began": began})
        self.context.barrier()  # all have written theirs
        checkpoints.finish(folder, self._world.rank, self.step, keep)
