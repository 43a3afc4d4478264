"""The results of a strategy's exchanges."""

from typing import Any, NamedTuple


class NonFinite(NamedTuple):
    """A message that all ranks drop, because a tensor on some rank was not finite."""

    names: tuple[str, ...]  # of its parameters
    here: tuple[str, ...]  # those that are not finite on this rank
    what: str = "gradient"  # what was sent of them: "gradient" or "parameters"


class StepResult(NamedTuple):
    """The result of a strategy's exchange."""

    state: Any  # the strategy's next state
    nonfinite: tuple[NonFinite, ...] = ()  # messages that were dropped


class Learning(NamedTuple):
    """The state of a learned code."""

    error: float  # relative error of the decoded mean at the last check; a running mean during training
    relearned: int  # number of times the error was too large, so that the code was trained again
    training: bool  # the code is trained now, and all ranks send full values
