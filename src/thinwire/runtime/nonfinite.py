"""NaN and infinity: the choices for handling them, and the text of the error."""

from collections.abc import Sequence

from ..core.outcome import NonFinite

ON_NONFINITE = ("raise", "skip", "pass")
MOST_NAMES = 3  # parameter names in an error
ADVICE = (
    "The state of thinwire is as it was before the step. attach(..., on_nonfinite='skip') drops such messages, 'pass' "
    "leaves them to a gradient scaler"
)


class NonFiniteError(FloatingPointError):
    """A gradient contained NaN or infinity; the state of the replicas is as it was before the step."""


def check_on_nonfinite(choice: str) -> None:
    if choice not in ON_NONFINITE:
        raise ValueError(f"on_nonfinite is one of {', '.join(map(repr, ON_NONFINITE))}, not {choice!r}")


def problem_of(nonfinite: Sequence[NonFinite]) -> str:
    """Names the parameters that are not finite on this rank; if there are none, all parameters of the messages."""
    names = names_here(nonfinite) or [name for message in nonfinite for name in message.names]
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"NaN or infinity in the {nonfinite[0].what} of {', '.join(names[:MOST_NAMES])}{more}"


def names_here(nonfinite: Sequence[NonFinite]) -> list[str]:
    """The parameters that are not finite on this rank."""
    return [name for message in nonfinite for name in message.here]
