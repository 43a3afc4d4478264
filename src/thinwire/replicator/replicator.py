"""The `Replicator`: write one replica, run it anywhere."""

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
from ..transports import InProcessTransport, Meter, default_transport, end_processes, seed_all
from . import checkpoint_files as checkpoints
from . import rerun
from .checkpoint_files import Kept
from .context import Context
from .contract import Contract
from .devices import default_device
from .inputs import Inputs
from .nests import detached
from .shutdown import leave
from .training_state import RunStart, Training
from .wrapped_model import Wrapping

Step = Callable[[Context, Any], Any]
Input = Callable[[Context], Iterable[Any]]
Stepping = TypeVar("Stepping", bound=Optimizer)


class Replicator:
    """Runs the step of one replica in one process or many, with any method between the replicas.

    A script that creates one is launched as `python train.py`, `thinwire run train.py --ranks 4` or
    `torchrun ... train.py`. Nothing is averaged except by the method of wrapped models and by the step's own calls.

    `method` is as for `attach`; by default "dense". The launcher's method overrides it (`thinwire run --method`).
    `replicas` is the number of replicas, by default the number launched. A script launched alone runs this many times
    in one process, in turns, with the same results.
    `devices_per_replica` is the number of ranks per replica.
    `seed` seeds Python, numpy and torch, differently on each replica.
    `checked` compares every call with those of the other replicas first, by a short message to each. Without it,
    replicas that make different calls may wait forever.

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

    VARIABLE = "THINWIRE_METHOD"  # the environment variable in which the launcher passes the method

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
            raise ValueError(f"replicas is 1 or more, not {replicas!r}")
        if devices_per_replica < 1:
            raise ValueError(f"devices_per_replica is 1 or more, not {devices_per_replica!r}")
        own_device = default_device(device)
        world, initialized = default_transport()
        if initialized:
            atexit.register(end_processes)
        alone = world.size == 1 and (replicas or 1) > 1
        if alone or (isinstance(world, InProcessTransport) and world.size > 1):
            rerun.check_not_imported()
        if alone:
            rerun.as_ranks((replicas or 1) * devices_per_replica)
        split = devices_per_replica if world.size > 1 else 1  # a process launched alone has all devices of its replica
        if world.size % split or (replicas is not None and world.size != replicas * split):
            wanted = f"{replicas} replicas" if replicas is not None else "replicas"
            raise ValueError(
                f"{world.size} ranks were launched, which cannot form {wanted} of {devices_per_replica} devices each"
            )
        rank, size = world.rank, world.size
        across = world if split == 1 else world.subgroup(tuple(range(rank % split, size, split)))
        within = None if split == 1 else world.subgroup(tuple(range(rank - rank % split, rank - rank % split + split)))
        self._world, self._across, self._within = world, across, within
        self._contract = Contract(across, checked)
        self._inner = None if within is None else Contract(within, checked, "device", f" of replica {across.rank}")
        self.context = Context(world, across, self._inner, self._contract, own_device, devices_per_replica)
        self._wrapping = Wrapping(self.strategy, across, self._contract, self._inner)
        self._training = Training(world, self.method, across.meter)
        self._save: Callable[[], None] | None = None  # set during a run with checkpoints
        if seed is not None:
            seed_all(seed * 2**16 + across.rank)  # CPU generators use 32 bits of it

    def __repr__(self) -> str:
        return f"<Replicator: replica {self.rank} of {self.num_replicas}, {self.method}>"

    @property
    def rank(self) -> int:
        """The rank of this replica."""
        return self.context.rank

    @property
    def num_replicas(self) -> int:
        return self.context.num_replicas

    @property
    def method(self) -> str:
        return notation_of(self.strategy)

    @property
    def handles(self) -> list[Handle]:
        """The handles of the wrapped models, in order."""
        return self._training.handles

    @property
    def step(self) -> int:
        """The number of completed steps."""
        return self._training.step

    @property
    def meter(self) -> Meter:
        """Counts the traffic of collectives and call checks. The handles have the meters of the method."""
        return self._across.meter

    def wrap(
        self, model: nn.Module, optimizer: Stepping, *, overlap: bool = False, **settings: Any
    ) -> tuple[nn.Module, Stepping]:
        """The model and its optimizer, synchronized with the other replicas by the method.

        Messages are exchanged when `optimizer.step()` begins or ends. With `overlap`, methods that average gradients
        exchange them during `backward()` if replicas are processes: the model is wrapped in torch's DDP then, which
        needs one forward for each backward, and every parameter used. `settings` are those of `attach`.
        """
        wrapped, handle = self._wrapping.wrap(model, optimizer, overlap, settings)
        self._training.wrap(handle, model, optimizer)
        return wrapped, optimizer

    def close(self) -> None:
        """Detach all wrapped models, which then train locally, and close the transports."""
        for handle in self.handles:
            handle.detach()
        self.handles.clear()
        self._wrapping.close()
        used = self._world, self._across, self._within
        for transport in {id(transport): transport for transport in used if transport is not None}.values():
            transport.close()

    def keep(self, **what: Kept) -> None:
        """Also save these objects in checkpoints: schedules, weight averages, anything with a state_dict."""
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
        """Run steps, each with the next of this replica's inputs; returns the step function's results, in order.

        With `checkpoint`, a folder, everything is saved there after every `every` steps and at the end. A restarted
        script resumes from it, and returns the results of the steps since. Several runs, such as epochs, may share a
        folder. The newest `keep` checkpoints are kept.
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
        """As `run`, yielding the results one by one; `save()` may be called between two of them."""
        for what, given in (("step_fn(context, batch)", step_fn), ("input_fn(context)", input_fn)):
            if not callable(given):
                raise TypeError(f"run() takes a function, {what}, not a {type(given).__name__}")
        if steps is not None and steps < 0:
            raise ValueError(f"steps is 0 or more, not {steps!r}")
        if every is not None and (checkpoint is None or every < 1):
            raise ValueError(f"every={every!r} needs a folder (checkpoint=...), and must be 1 or more")
        if keep < 1:
            raise ValueError(f"keep is 1 checkpoint or more, not {keep!r}")
        folder = None if checkpoint is None else Path(checkpoint).resolve()
        first_of_run = self.step
        try:
            extent = "until inputs end" if steps is None else f"of {steps} steps"
            for contract in self._contracts:
                contract.check("run()", f"{extent}, saved every {every} steps" if folder is not None else extent)
            run = RunStart(None) if folder is None else self._training.start(folder)
            if run.completed:
                return
            first_of_run = first_of_run if run.inputs is None else run.inputs["began"]
            seed = self._sampled_seed() if run.inputs is None else run.inputs["seed"]
            inputs, first = Inputs(lambda: input_fn(self.context), seed, self.rank, run.inputs), self.step
            self._save = None if folder is None else partial(self._saved, folder, inputs, first_of_run, keep)
            if self._contract.compares:
                inputs.check_lengths(self.context, steps)
            while steps is None or self.step - first_of_run < steps:
                try:
                    batch = inputs.next()
                except StopIteration:
                    break
                result = detached(step_fn(self.context, batch))
                self._training.step += 1
                if every and self.step % every == 0 and self.step - first_of_run != steps:
                    self.save()
                yield result
            if all(len(handle.ranks) == self.num_replicas for handle in self.handles):  # no rank has failed
                self._contract.check("the end of run()", f"after {self.step - first_of_run} steps")
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
        """Save a checkpoint now, between two steps of `iterate(..., checkpoint=...)`. All replicas must call it."""
        if self._save is None:
            raise RuntimeError("save() may only be called between two steps of iterate(..., checkpoint=FOLDER)")
        self._save()

    def _sampled_seed(self) -> int:
        """A seed from the generator of this replica's first device: placed parts may draw on their own device only."""
        seed = torch.randint(2**31, (1,))
        if self._inner is not None:
            with self._inner.guarded():
                self._inner.transport.broadcast([seed], 0)
        return int(seed)

    def _leave(self, problem: BaseException) -> None:
        notify = [*(contract.abort for contract in self._contracts), *(handle.abort for handle in self.handles)]
        leave(problem, self._world, notify)

    @property
    def _contracts(self) -> list[Contract]:
        return [self._contract] if self._inner is None else [self._contract, self._inner]

    def _saved(self, folder: Path, inputs: Inputs, first_of_run: int, keep: int) -> None:
        self._training.save(folder, inputs.state_dict() | {"began": first_of_run})
        self.context.barrier()  # wait until all have written theirs
        checkpoints.finish(folder, self._world.rank, self.step, keep)
