"""What comes of a strategy's talk."""

from typing import Any, NamedTuple


class NonFinite(NamedTuple):
    """A message that counts for nothing, because some rank's tensor was not finite."""

    names: tuple[str, ...]  # of the parameters it was about
    here: tuple[str, ...]  # those of them that are not finite on this rank
    what: str = "gradient"  # of theirs it was about


class StepResult(NamedTuple):
    """What an exchange of a strategy returns."""

    state: Any  # the strategy's, to go on from
    nonfinite: tuple[NonFinite, ...] = ()  # messages that were dropped because a tensor was not finite


class Learning(NamedTuple):
    """How well a method has learned to say less."""

    error: float  # of what is agreed on, of its norm, when it was last looked at
    relearned: int  # how often it was found wanting
    goes_on: bool  # it is learning now, and says everything
