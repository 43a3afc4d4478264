"""The one line that people add to their scripts."""

import warnings
from pathlib import Path
from socket import gethostname
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from .core import Codec, Reducer, Replica, Strategy
from .core.described import parts_of
from .handle import Handle
from .methods import notation_of, strategy_of
from .reducers import goes_by_rate
from .runtime.hooks import Buckets, Updates, is_attached
from .runtime.nonfinite import check_on_nonfinite
from .runtime.peer_loss import ON_PEER_LOSS
from .runtime.preparation import prepared
from .runtime.replica_of import local, parameters_of, replica_of
from .runtime.session import Session
from .strategies import check_placed
from .transports import BucketHook, Transport, transport_in

A_MINUTE = 60.0  # to tell each other that something is wrong


def attach(
    model: nn.Module,
    method: str | Codec | Reducer | Strategy,
    *,
    optimizer: Optimizer | None = None,
    on_nonfinite: str = "raise",
    on_peer_loss: str = "raise",
    peer_timeout: float | None = None,
    group: Any = None,
    find_unused_parameters: bool = True,
) -> Handle:
    """Exchange gradients or parameters by a method, on every rank alike.

    A DDP model needs nothing else: its gradient averaging is replaced. For a plain module, give its optimizer: the
    parameters of rank 0 are copied to all ranks now, and what there is to exchange is, as each `optimizer.step()`
    begins or ends. Methods in which replicas take steps of their own take plain modules only.

    `method` is a codec, reducer or strategy, its notation, or a short name (`thinwire methods` lists them).
    `on_nonfinite` says what to do when any rank's gradient holds NaN or infinity: "raise" on all ranks; "skip", which
    makes that gradient zero everywhere and counts it in the meter; "pass", which leaves NaN in it on all ranks for a
    gradient scaler to see (with DDP only: elsewhere a scaler decides on each rank alone, before the exchange).
    What is remembered of a gradient that is not finite stays as it was.
    `on_peer_loss` says what to do when a rank dies, or does not answer for `peer_timeout` seconds (by default, as long
    as the process group waits): "raise" one PeerLostError on all ranks; "continue", for methods that speak with
    neighbors, which goes on with those who are left.
    `group` is the torch.distributed group to speak in (a DDP model brings its own).
    `find_unused_parameters=False` promises that each step uses every parameter of a plain module, as DDP's argument of
    that name does: no flags are sent for parameters without a gradient, and a missing gradient counts as zero.

    Examples:
        >>> import torch
        >>> import thinwire
        >>> from thinwire.simulate import InProcessCluster
        >>> def train():  # on a real cluster: a script that torchrun starts
        ...     model = torch.nn.Linear(1000, 1000)
        ...     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        ...     handle = thinwire.attach(model, "topk", optimizer=optimizer)
        ...     for _ in range(3):
        ...         optimizer.zero_grad()
        ...         model(torch.randn(8, 1000)).square().mean().backward()
        ...         optimizer.step()  # exchanges the gradients first
        ...     return round(handle.meter.ratio), model.weight.sum().item()
        >>> (ratio, first), (_, second) = InProcessCluster(2).run(train)
        >>> ratio, first == second  # the replicas are identical
        (130, True)
    """
    base = getattr(model, "_orig_mod", model)  # torch.compile(DDP(model))
    ddp = base if isinstance(base, DistributedDataParallel) else None
    problem: ValueError | None = None
    replica: Replica | None = None
    # Whatever is wrong on a rank, all have to find the same group to say so in.
    timeout = peer_timeout if peer_timeout is None or peer_timeout > 0 else A_MINUTE
    try:
        check_on_nonfinite(on_nonfinite)
        strategy = strategy_of(method)
        _check_choices(strategy, on_nonfinite, on_peer_loss, find_unused_parameters)
        if timeout != peer_timeout:
            raise ValueError(f"peer_timeout is in seconds, above 0, not {peer_timeout!r}")
        replica = (
            _checked_plain(model, strategy, optimizer)
            if ddp is None
            else _checked_ddp(ddp, strategy, optimizer, group, find_unused_parameters)
        )
        _warn_without_effect(strategy, replica)
        if optimizer is not None:
            check_momentum(strategy, optimizer)
    except ValueError as error:
        problem = error
    try:
        transport = _transport(model, group if ddp is None else ddp.process_group, timeout, problem)
        hosts = _hosts(transport)
        if problem is None and replica is not None:
            problem = _misplaced(strategy, transport.size, hosts) or _mixed_up(replica, transport.ranks)
        _raise_everywhere(transport, problem)
        assert replica is not None, "else there was a problem"
        _warn_of_unlike_machines(transport, strategy)
        replica = replica._replace(rank=transport.rank, size=transport.size, hosts=hosts)
        here = [local(tensor) for tensor in (*model.parameters(), *model.buffers())] if ddp is None else []
        copied = [tensor for tensor in here if tensor.numel()]
        session = Session(replica, strategy, transport, on_nonfinite, on_peer_loss, copied)
    except BaseException:
        if replica is not None and strategy.factoring is not None:
            strategy.factoring.release(replica)
        raise
    if ddp is not None:
        hook = BucketHook.of(ddp)
        hook.exchange = Buckets(ddp, session, strategy.gradient_averaging).exchange  # type: ignore[arg-type]  # checked above
        return Handle(session, ddp.module, lambda: setattr(hook, "exchange", None))
    return Handle(session, base, Updates(session, optimizer, model, find_unused_parameters).remove)  # type: ignore[arg-type]  # checked


def check_momentum(method: str | Codec | Reducer | Strategy, optimizer: Optimizer) -> None:
    """Warn if a method takes back another momentum than the optimizer has; `attach` does not see a DDP model's."""
    for warning in strategy_of(method).check_optimizer(optimizer):
        warnings.warn(warning, stacklevel=3)


def _check_choices(strategy: Strategy, on_nonfinite: str, on_peer_loss: str, find_unused_parameters: bool) -> None:
    """What to do about trouble has to go with the strategy."""
    if not find_unused_parameters and (not strategy.gradient_averaging or strategy.dedicated_servers):
        raise ValueError(
            "find_unused_parameters=False needs a method that averages the gradients of all ranks, which "
            f"{notation_of(strategy)} does not"
        )
    if on_nonfinite == "pass" and strategy.replicas_differ:
        raise ValueError(f"on_nonfinite='pass' needs gradients that all ranks share, and {strategy!r} has others")
    if goes_by_rate(strategy) and not strategy.gradient_averaging:
        raise ValueError(f"by_rate=True is for gradients, and {notation_of(strategy)} speaks of parameters")
    if on_peer_loss not in ON_PEER_LOSS:
        raise ValueError(f"on_peer_loss is one of {', '.join(map(repr, ON_PEER_LOSS))}, not {on_peer_loss!r}")
    if on_peer_loss == "continue" and not strategy.survivable:
        raise ValueError(
            "on_peer_loss='continue' is for replicas that speak with neighbors only, and "
            f"{notation_of(strategy)} needs all ranks"
        )


def _checked_ddp(
    ddp: DistributedDataParallel,
    strategy: Strategy,
    optimizer: Optimizer | None,
    group: Any,
    find_unused_parameters: bool,
) -> Replica:
    if optimizer is not None or group is not None or not find_unused_parameters:
        raise ValueError(
            "a DDP model brings its own hook and group: leave out optimizer=, group= and find_unused_parameters="
        )
    if not strategy.gradient_averaging:
        raise ValueError(f"{strategy!r} does not average gradients; DDP does nothing else, so attach the plain module")
    if strategy.dedicated_servers:
        raise ValueError(
            f"{notation_of(strategy)} has a rank without gradients; DDP has none, so attach the plain module"
        )
    if BucketHook.of(ddp).exchange is not None:
        raise ValueError("thinwire is attached to this model already; call detach() on the first handle")
    ignored: set[str] = getattr(ddp, "parameters_to_ignore", set())
    return replica_of(ddp.module, only=[p for name, p in ddp.module.named_parameters() if name not in ignored])


def _checked_plain(model: nn.Module, strategy: Strategy, optimizer: Optimizer | None) -> Replica:
    if optimizer is None:
        raise ValueError("a model that is not wrapped in DistributedDataParallel needs attach(..., optimizer=...)")
    trained = [p for settings in optimizer.param_groups for p in settings["params"] if p.requires_grad]
    known = {id(p) for p in model.parameters()}
    strangers = sum(id(p) not in known for p in trained)
    if strangers:
        raise ValueError(f"the optimizer holds {strangers} parameters that the model does not have")
    if is_attached(optimizer):
        raise ValueError("thinwire is attached to this optimizer already; call detach() on the first handle")
    return prepared(strategy, model, optimizer, only=trained)


def _transport(model: nn.Module, group: Any, timeout: float | None, problem: ValueError | None) -> Transport:
    try:
        return transport_in(group, next((p.device for p in model.parameters()), None), timeout)
    except RuntimeError as error:  # there is nobody to tell
        raise problem or error from None


def _hosts(transport: Transport) -> tuple[str, ...]:
    """The machine of each rank: where network namespaces differ, machines do."""
    namespace = Path("/proc/self/ns/net")
    here = f"{gethostname()} {namespace.readlink() if namespace.is_symlink() else ''}"
    return tuple(told.decode().strip() for told in transport.gather(here.encode()))


def _misplaced(strategy: Strategy, ranks: int, hosts: tuple[str, ...]) -> ValueError | None:
    """What does not go with so many ranks."""
    try:
        check_placed(strategy, ranks, hosts)
    except ValueError as error:
        return error
    return None


def _mixed_up(replica: Replica, ranks: tuple[int, ...]) -> ValueError | None:
    """Ranks that have other parts of a parameter would be averaged with this one's."""
    for name, whole in replica.dtensors.items():
        split = sorted(set(whole.device_mesh.mesh.flatten().tolist()) & set(ranks))
        if len(split) > 1:
            return ValueError(
                f"{name} is split over ranks {split}, which have different parts of it and speak with each other here: "
                "use a Replicator(devices_per_replica=...), or a group of ranks that have the same part"
            )
    return None


def _raise_everywhere(transport: Transport, problem: ValueError | None) -> None:
    """If a rank cannot go on, let none of them: the others would wait for it."""
    problems = [told.decode().strip() for told in transport.gather(str(problem or "").encode())]
    rank = next((r for r, told in enumerate(problems) if told), None)
    if rank is not None:
        transport.close()
        raise problem or ValueError(f"rank {rank} cannot attach: {problems[rank]}")


def _warn_of_unlike_machines(transport: Transport, strategy: Strategy) -> None:
    """Some methods factorise, or decode, on every rank: arithmetic that differs in a last bit makes replicas drift."""
    here = f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads"
    machines = [told.decode() for told in transport.gather(here.encode())]
    on_all = any(isinstance(part, Reducer | Strategy) and part.same_arithmetic for part in parts_of(strategy))
    if on_all and len(set(machines)) > 1:
        warnings.warn(
            f"the ranks do not compute alike, so their replicas may drift apart: {'; '.join(sorted(set(machines)))}",
            stacklevel=3,
        )


def _warn_without_effect(strategy: Strategy, replica: Replica) -> None:
    """A setting that changes nothing is a mistake, and its user wants to know."""
    for warning in strategy.diagnose(replica, parameters_of(replica)):
        warnings.warn(f"{notation_of(strategy)}: {warning}", stacklevel=3)
