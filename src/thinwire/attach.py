"""`attach`: the one line to add to a training script."""

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
from .reducers import uses_learning_rate
from .runtime.ddp_hook import BucketHook, Buckets
from .runtime.nonfinite import check_on_nonfinite
from .runtime.optimizer_hook import Updates, is_attached
from .runtime.peer_loss import ON_PEER_LOSS
from .runtime.preparation import prepared
from .runtime.replica_of import local, parameters_of, replica_of
from .runtime.session import Session
from .strategies import check_placed
from .transports import Transport, transport_in

FALLBACK_TIMEOUT = 60.0  # seconds, if peer_timeout is invalid: the ranks still inform each other of that error


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
    """Exchange gradients or parameters by `method`. All ranks must call it, with the same arguments.

    With a DDP model, the method replaces DDP's all-reduce of gradients. With a plain module, pass its optimizer: this
    call copies the parameters and buffers of rank 0 to all ranks, and each `optimizer.step()` then exchanges gradients
    before the update or parameters after it. Methods whose replicas differ take plain modules only.

    Args:
        method: A codec, reducer or strategy, its notation, or a short name (`thinwire methods` lists them).
        optimizer: For a plain module, the optimizer whose steps exchange gradients or parameters.
        on_nonfinite: What to do if any rank's gradient contains NaN or infinity. "raise" raises NonFiniteError on all
            ranks. "skip" sets that gradient to zero on all ranks and counts it in the meter. "pass" leaves NaN in it on
            all ranks for a gradient scaler (with DDP only: with a plain module, a scaler decides on each rank alone,
            before the exchange). The state of reducers, such as the residual, stays as it was before the step.
        on_peer_loss: What to do if a rank dies, or does not answer for `peer_timeout` seconds. "raise" raises one
            PeerLostError on all ranks. "continue" continues with the surviving ranks, for decentralized methods.
        peer_timeout: In seconds; by default, the timeout of the process group.
        group: For a plain module, the torch.distributed process group to exchange in; by default, all ranks.
        find_unused_parameters: False promises that each step uses every parameter of a plain module, as DDP's argument
            of that name does. Then no flags are sent for parameters without a gradient, and a missing gradient counts
            as zero.

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
    # Errors are kept until all ranks share a transport: if one rank cannot attach, all raise.
    timeout = peer_timeout if peer_timeout is None or peer_timeout > 0 else FALLBACK_TIMEOUT
    try:
        check_on_nonfinite(on_nonfinite)
        strategy = strategy_of(method)
        _check_arguments(strategy, on_nonfinite, on_peer_loss, find_unused_parameters)
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
            problem = _misplaced(strategy, transport.size, hosts) or _shards_in_group(replica, transport.ranks)
        _raise_everywhere(transport, problem)
        assert replica is not None, "otherwise there is a problem, and it was raised"
        _warn_of_different_arithmetic(transport, strategy)
        replica = replica._replace(rank=transport.rank, size=transport.size, hosts=hosts)
        tensors = [local(tensor) for tensor in (*model.parameters(), *model.buffers())] if ddp is None else []
        copied = [tensor for tensor in tensors if tensor.numel()]
        session = Session(replica, strategy, transport, on_nonfinite, on_peer_loss, copied)
    except BaseException:
        if replica is not None and strategy.factoring is not None:
            strategy.factoring.release(replica)  # restores the model's own layers
        raise
    if ddp is not None:
        hook = BucketHook.of(ddp)
        hook.exchange = Buckets(ddp, session, strategy.gradient_averaging).exchange  # type: ignore[arg-type]  # checked above
        return Handle(session, ddp.module, lambda: setattr(hook, "exchange", None))
    return Handle(session, base, Updates(session, optimizer, model, find_unused_parameters).remove)  # type: ignore[arg-type]  # checked


def check_momentum(method: str | Codec | Reducer | Strategy, optimizer: Optimizer) -> None:
    """Warn if a method assumes another momentum than the optimizer has.

    `attach` cannot check it for a DDP model, as it does not get the optimizer.
    """
    for warning in strategy_of(method).check_optimizer(optimizer):
        warnings.warn(warning, stacklevel=3)


def _check_arguments(strategy: Strategy, on_nonfinite: str, on_peer_loss: str, find_unused_parameters: bool) -> None:
    """ValueError if an argument does not work with the strategy."""
    if not find_unused_parameters and (not strategy.gradient_averaging or strategy.dedicated_servers):
        raise ValueError(
            "find_unused_parameters=False needs a method that averages the gradients of all ranks, which "
            f"{notation_of(strategy)} does not"
        )
    if on_nonfinite == "pass" and strategy.replicas_differ:
        raise ValueError(
            f"on_nonfinite='pass' needs gradients that are equal on all ranks, unlike those of {strategy!r}"
        )
    if uses_learning_rate(strategy) and not strategy.gradient_averaging:
        raise ValueError(f"by_rate=True is for gradients, and {notation_of(strategy)} exchanges parameters")
    if on_peer_loss not in ON_PEER_LOSS:
        raise ValueError(f"on_peer_loss is one of {', '.join(map(repr, ON_PEER_LOSS))}, not {on_peer_loss!r}")
    if on_peer_loss == "continue" and not strategy.survivable:
        raise ValueError(
            "on_peer_loss='continue' is for methods that exchange with neighbors only, and "
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
            "a DDP model has its own hook and process group: leave out optimizer=, group= and find_unused_parameters="
        )
    if not strategy.gradient_averaging:
        raise ValueError(f"{strategy!r} does not average gradients as DDP does: attach the plain module instead")
    if strategy.dedicated_servers:
        raise ValueError(
            f"{notation_of(strategy)} has a rank without gradients, which DDP does not support: attach the plain "
            "module instead"
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
    unknown = sum(id(p) not in known for p in trained)
    if unknown:
        raise ValueError(f"the optimizer has {unknown} parameters that the model does not have")
    if is_attached(optimizer):
        raise ValueError("thinwire is attached to this optimizer already; call detach() on the first handle")
    return prepared(strategy, model, optimizer, only=trained)


def _transport(model: nn.Module, group: Any, timeout: float | None, problem: ValueError | None) -> Transport:
    try:
        return transport_in(group, next((p.device for p in model.parameters()), None), timeout)
    except RuntimeError as error:  # without a transport, no other rank can be informed
        raise problem or error from None


def _hosts(transport: Transport) -> tuple[str, ...]:
    """An identifier of each rank's machine: its host name and network namespace."""
    namespace = Path("/proc/self/ns/net")
    own = f"{gethostname()} {namespace.readlink() if namespace.is_symlink() else ''}"
    return tuple(host.decode().strip() for host in transport.gather(own.encode()))


def _misplaced(strategy: Strategy, ranks: int, hosts: tuple[str, ...]) -> ValueError | None:
    """The error if the strategy does not work with this number of ranks on these machines."""
    try:
        check_placed(strategy, ranks, hosts)
    except ValueError as error:
        return error
    return None


def _shards_in_group(replica: Replica, ranks: tuple[int, ...]) -> ValueError | None:
    """The error if ranks of the group have different shards of a parameter: these must not be averaged."""
    for name, dtensor in replica.dtensors.items():
        split = sorted(set(dtensor.device_mesh.mesh.flatten().tolist()) & set(ranks))
        if len(split) > 1:
            return ValueError(
                f"{name} is sharded over ranks {split}, which have different shards of it and are in one group here: "
                "use a Replicator(devices_per_replica=...), or a group of ranks that have the same shard"
            )
    return None


def _raise_everywhere(transport: Transport, problem: ValueError | None) -> None:
    """If one rank has an error, raise on all of them: otherwise they would wait for it."""
    problems = [text.decode().strip() for text in transport.gather(str(problem or "").encode())]
    rank = next((r for r, text in enumerate(problems) if text), None)
    if rank is not None:
        transport.close()
        raise problem or ValueError(f"rank {rank} cannot attach: {problems[rank]}")


def _warn_of_different_arithmetic(transport: Transport, strategy: Strategy) -> None:
    """Warn if the arithmetic of the ranks may differ, for methods that compute the same result on every rank."""
    own = f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads"
    machines = [text.decode() for text in transport.gather(own.encode())]
    needs_same = any(isinstance(part, Reducer | Strategy) and part.same_arithmetic for part in parts_of(strategy))
    if needs_same and len(set(machines)) > 1:
        warnings.warn(
            "the arithmetic of the ranks may differ, so their replicas may drift apart: "
            f"{'; '.join(sorted(set(machines)))}",
            stacklevel=3,
        )


def _warn_without_effect(strategy: Strategy, replica: Replica) -> None:
    """Warn about settings of the strategy that have no effect on this model."""
    for warning in strategy.diagnose(replica, parameters_of(replica)):
        warnings.warn(f"{notation_of(strategy)}: {warning}", stacklevel=3)
