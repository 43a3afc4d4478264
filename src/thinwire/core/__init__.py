"""What things promise each other: the protocols, lazy tensors, error bounds, states."""

from .protocols import (
    EACH,
    Codec,
    Conversation,
    Envelope,
    Message,
    Parameter,
    Parts,
    PayloadError,
    Peers,
    Reducer,
    Replica,
    Reply,
    Rounds,
    State,
    lockstep,
)
from .strategy import GradientAveraging, Overlapping, Strategy, Survivable

__all__ = [
    "EACH",
    "Codec",
    "Conversation",
    "Envelope",
    "GradientAveraging",
    "Message",
    "Overlapping",
    "Parameter",
    "Parts",
    "PayloadError",
    "Peers",
    "Reducer",
    "Replica",
    "Reply",
    "Rounds",
    "State",
    "Strategy",
    "Survivable",
    "lockstep",
]
