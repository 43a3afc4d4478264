"""NaN and infinity: what may be done about them, and how they are told of."""

from collections.abc import Sequence

from ..core.outcome import NonFinite

ON_NONFINITE = ("raise", "skip", "pass")
MOST_NAMES = 3  # of parameters, in an error
ADVICE = (
    "What thinwire remembers is as it was before. attach(..., on_nonfinite='skip') drops such messages, 'pass' leaves "
    "them to a gradient scaler"
)


class NonFiniteError(FloatingPointError):
    """A gradient held NaN or infinity; what the replicas remember is as it was before the step."""


def check_on_nonfinite(choice: str) -> None:
    if choice not in ON_NONFINITE:
        raise ValueError(f"on_nonfinite is one of {', '.join(map(repr, ON_NONFINITE))}, not {choice!r}")


def problem_of(lost: Sequence[NonFinite]) -> str:
    """What was not finite: on this rank if it knows, else all that the messages were about."""
    names = names_here(lost) or [name for message in lost for name in message.names]
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"NaN or infinity in the {lost[0].what} of {', '.join(names[:MOST_NAMES])}{more}"


def names_here(lost: Sequence[NonFinite]) -> list[str]:
    return [name for message in lost for name in message.here]
