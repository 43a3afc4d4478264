"""The interfaces between the layers.

Codec      tensor <-> parts of a message            pure, no state
Reducer    all peers' tensors to one tensor         explicit state, passed in and returned
Peers      the ranks to sum over, with weights      plain data
Strategy   what replicas exchange, and when         holds the reducers' states
Transport  sends, receives and counts the messages  the only layer that does I/O
"""

from .codec import Codec, Parts, PayloadError
from .factoring import Factoring
from .messages import Conversation, Envelope, Message, Peers, Reply, Rounds, lockstep
from .reducer import Reducer, State, states_of
from .replica import Parameter, Replica
from .routes import (
    ALL_GATHER,
    ALL_REDUCE,
    REDUCE_SCATTER,
    Collective,
    Route,
    broadcast_from,
    gather_to,
    reduce_to,
    send,
)
from .strategy import GradientAveraging, Overlapping, Strategy, Survivable

__all__ = [
    "ALL_GATHER",
    "ALL_REDUCE",
    "REDUCE_SCATTER",
    "Codec",
    "Collective",
    "Conversation",
    "Envelope",
    "Factoring",
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
    "Route",
    "State",
    "Strategy",
    "Survivable",
    "broadcast_from",
    "gather_to",
    "lockstep",
    "reduce_to",
    "send",
    "states_of",
]
