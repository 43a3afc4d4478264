"""Checks of a plan that need no data."""

import thinwire
from thinwire import inspect
from thinwire.lab.links.link import CENTER, Link
from thinwire.lab.runner.data_sharding import skew
from thinwire.lab.runner.plan import Plan, PlanError
from thinwire.lab.tasks import workloads
from thinwire.lab.tasks.workload import Workload


def check_plan(plan: Plan) -> None:
    """Raise ValueError for a plan that cannot be run; loads no data."""
    workload, strategy = workloads.named(plan.workload), thinwire.strategy_of(plan.method)
    check_budget(plan, workload)
    inspect.check_placed(strategy, plan.size)
    check_server(plan)
    skew(plan.shards)
    if plan.link is not None:
        Link.parse(plan.link)
    batch_per_rank(plan, workload, plan.ranks - len(inspect.dedicated_servers(strategy)))


def check_budget(plan: Plan, workload: Workload) -> None:
    """Raise PlanError for a budget that a workload does not have."""
    if plan.budget not in workload.budgets:
        raise PlanError(f"{plan.workload} has no budget {plan.budget!r}, only {', '.join(workload.budgets)}")


def batch_per_rank(plan: Plan, workload: Workload, trainers: int) -> int:
    """Examples per step on each training rank."""
    if plan.batch_per_rank is not None:
        return plan.batch_per_rank
    batch = plan.batch or workload.batch
    if batch < trainers:
        raise PlanError(f"a batch of {batch} cannot be divided among {trainers} ranks")
    return batch // trainers


def check_server(plan: Plan) -> None:
    """Raise PlanError if the settings of a plan do not work with the rank of its method's server."""
    strategy = thinwire.strategy_of(plan.method)
    if plan.capture and 0 in inspect.dedicated_servers(strategy):
        raise PlanError(
            "rank 0 is a dedicated server, so it has no gradients to capture: choose another server, with rank=1"
        )
    if plan.link is not None and Link.parse(plan.link).star:
        if plan.size == 1:
            raise PlanError(f"{plan.link} has rank {CENTER} in the middle, and there is no other rank")
        others = inspect.servers(strategy) - {CENTER}
        if others:
            raise PlanError(
                f"in the middle of {plan.link} is rank {CENTER}, but the server of {plan.method} is rank {max(others)}"
            )
