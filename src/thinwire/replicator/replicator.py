"""Write one replica, run it anywhere."""

import atexit
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from ..attach import attach
from ..core import Codec, Reducer, Strategy
from ..handle import Handle
from ..methods import notation_of, strategy_of
from ..reducers import servers_apart
from ..strategies import DataParallel, Neighbours, check_placed
from ..transports import (
    Collectives,
    Local,
    Meter,
    PeerLostError,
    Transport,
    ddp_of,
    end_processes,
    seed_all,
    transport_here,
)
from . import checkpoints, rerun
from .checkpoints import Kept
from .context import Context
from .contract import Contract, ContractError, called_at
from .devices import check_alike, device_here
from .inputs import Inputs
from .nests import detached
from .training import Begun, Training

# Seconds for the one that stopped first to show its error in, as launchers end it when another one has ended. It tells
# all others before, so they are for each of those who are told, and at most.
SPEAK, LONGEST = 1.0, 5.0

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
        if alone or (isinstance(world, Local) and world.size > 1):
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
        self._for_ddp: Transport | None = None
        self._hooks: list[RemovableHandle] = []
        self._training = Training(world, self.method, across.meter)
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
        number = f"of wrap() number {len(self.handles) + 1}"
        self._contract.check("wrap()", _told(self.method, overlap, settings))
        if self._inner is not None:
            check_alike(model, self._inner)
        wrapped: nn.Module = model
        strategy = self.strategy
        if self.num_replicas == 1 and self._cannot_be_alone():
            warnings.warn(f"{self.method} has no effect: there is but one replica", stacklevel=2)
            strategy = strategy_of("dense")
        if overlap and self._averages_gradients and (ddp := self._ddp(model)) is not None:
            handle = attach(ddp, strategy, **settings)
            self._hooks.append(ddp.register_forward_pre_hook(lambda module, _: self._before_forward(module, number)))
            wrapped = ddp
        else:
            if not isinstance(strategy, Neighbours):  # who speaks with neighbours only does not wait for all
                check = optimizer.register_step_pre_hook(lambda *_: self._before_step(handle, number))
                self._hooks.append(check)
            said = {"all_used": True} if overlap and self._averages_gradients else {}
            handle = attach(model, strategy, optimizer=optimizer, group=self._across, **(said | settings))
        handle.before_asking(lambda what: self._contract.check(what, number))
        self._training.wrap(handle, model, optimizer)
        return wrapped, optimizer

    def close(self) -> None:
        """Stop: what was wrapped trains on by itself, and another Replicator may take the place of this one."""
        for handle in self.handles:
            handle.detach()
        self.handles.clear()
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        used = self._world, self._across, self._within, self._for_ddp
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
    ) -> list[Any]:
        """Make steps, each with the next of this replica's inputs; returns what the step function returned, in order.

        With `checkpoint`, a folder, everything is saved there after each `every` steps and at the end, and a script
        that is started again goes on from it: lists begin with the first step that was made this time. Several runs,
        such as epochs, may be saved in one folder.
        """
        return list(self.iterate(step_fn, input_fn, steps, checkpoint=checkpoint, every=every))

    def iterate(
        self,
        step_fn: Step,
        input_fn: Input,
        steps: int | None = None,
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        every: int | None = None,
    ) -> Iterator[Any]:
        """As `run`, one outcome after the other."""
        if steps is not None and steps < 0:
            raise ValueError(f"a run has 0 steps or more, not {steps!r}")
        if every is not None and (checkpoint is None or every < 1):
            raise ValueError(f"every={every!r} takes a folder (checkpoint=...), and is 1 or more")
        folder = None if checkpoint is None else Path(checkpoint).resolve()
        began = self.step
        try:
            told = "until inputs end" if steps is None else f"of {steps} steps"
            self._contract.check("run()", f"{told}, saved every {every} steps" if folder is not None else told)
            run = Begun(None) if folder is None else self._training.begin(folder)
            if run.past:
                return
            began = began if run.inputs is None else run.inputs["began"]
            seed = self._drawn_seed() if run.inputs is None else run.inputs["seed"]
            inputs = Inputs(lambda: input_fn(self.context), seed, self.rank, run.inputs)
            if self._contract.compares:
                self._check_lengths(inputs.length, steps)
            while steps is None or self.step - began < steps:
                try:
                    batch = inputs.next()
                except StopIteration:
                    break
                outcome = detached(step_fn(self.context, batch))
                self._training.step += 1
                if folder is not None and every and self.step % every == 0 and self.step - began != steps:
                    self._save(folder, inputs, began)
                yield outcome
            if all(len(handle.ranks) == self.num_replicas for handle in self.handles):  # and none was gone on without
                self._contract.check("the end of run()", f"after {self.step - began} steps")
            if folder is not None:
                self._save(folder, inputs, began)
        except GeneratorExit:
            raise
        except BaseException as error:
            self._leave(error)
            raise

    def _drawn_seed(self) -> int:
        """Of this replica's generator; what is placed on a device of it may draw there, and nowhere else."""
        seed = torch.randint(2**31, (1,))
        if self._within is not None:
            self._within.broadcast([seed], 0)
        return int(seed)

    def _check_lengths(self, length: int | None, steps: int | None) -> None:
        """Replicas whose inputs end before those of others are told before the first step, if lengths are known."""
        used = length if steps is None else steps if length is None else min(length, steps)
        there = self.context.all_gather(torch.tensor(-1 if used is None else used)).tolist()
        if len({n for n in there if n >= 0}) > 1:
            told = ", ".join(f"replica {r} {n}" for r, n in enumerate(there) if n >= 0)
            raise ContractError(
                f"the inputs of run() at {called_at()} are not of one length (batches: {told}): give all replicas as "
                "many, as context.share() does, or make as many steps as the shortest has (steps=...)"
            )

    def _leave(self, problem: BaseException) -> None:
        """Tell those who wait for this replica, whatever for, that it has stopped, and why."""
        contracts = [self._contract, *([] if self._inner is None else [self._inner])]
        ways: list[Callable[[BaseException], None]] = [contract.leave for contract in contracts]
        ways += [handle.leave for handle in self.handles]
        if not isinstance(self._world, Collectives):
            for leave in ways:
                leave(problem)
            return
        # At once: each waits until the others have heard, and they hear of one after the other.
        threads = [threading.Thread(target=leave, args=(problem,), daemon=True) for leave in ways]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if isinstance(problem, ContractError | PeerLostError):
            time.sleep(min(SPEAK * max(1, self._world.size - 1), LONGEST))

    def _save(self, folder: Path, inputs: Inputs, began: int) -> None:
        self._training.save(folder, inputs.state_dict() | {"began": began})
        self.context.barrier()  # all have written theirs
        checkpoints.let_go(folder, self._world.rank)

    def _ddp(self, model: nn.Module) -> nn.Module | None:
        """The model in torch's DDP, where replicas are processes."""
        # In a group that nothing else speaks in: DDP holds it, and its connections would be open after leaving it.
        self._for_ddp = self._for_ddp or self._across.another()
        return ddp_of(model, self._for_ddp)

    def _before_forward(self, module: nn.Module, number: str) -> None:
        if module.training and torch.is_grad_enabled():
            self._contract.check("forward()", number)

    def _before_step(self, handle: Handle, number: str) -> None:
        if handle.speaks:  # else nobody waits for anybody
            self._contract.check("optimizer.step()", number)

    @property
    def _averages_gradients(self) -> bool:
        """As DDP would, on all ranks."""
        return isinstance(self.strategy, DataParallel) and not servers_apart(self.strategy)

    def _cannot_be_alone(self) -> bool:
        try:
            check_placed(self.strategy, 1)
        except ValueError:
            return True
        return False


def _told(method: str, overlap: bool, settings: dict[str, Any]) -> str:
    """How something is wrapped. Of what has no text that is the same everywhere, its type is told."""
    plain = (str, int, float, bool, type(None))
    said = [f"{name}={x!r}" if isinstance(x, plain) else f"{name}: {type(x).__name__}" for name, x in settings.items()]
    return ", ".join([f"by {method}", *(["overlap=True"] if overlap else []), *sorted(said)])
