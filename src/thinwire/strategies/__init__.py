"""Strategies: what replicas exchange, and when."""

from ..core.layer_report import Layer
from .ab_training.ab_training import ABTraining
from .ab_training.synchronization import factored_model_of
from .consensus import Consensus, consensus
from .data_parallel import DataParallel, training_peers
from .decentralized import Decentralized
from .easgd import EASGD
from .edge_gossip import EdgeGossip
from .gossip import Gossip
from .hierarchical import Hierarchical
from .independent import Independent
from .leader_sgd import LeaderSGD, leading
from .local_sgd import LocalSGD
from .outer_sgd import OuterSGD
from .placement import check_placed
from .push_sum import PushSum
from .units import Unit

__all__ = [
    "EASGD",
    "ABTraining",
    "Consensus",
    "DataParallel",
    "Decentralized",
    "EdgeGossip",
    "Gossip",
    "Hierarchical",
    "Independent",
    "Layer",
    "LeaderSGD",
    "LocalSGD",
    "OuterSGD",
    "PushSum",
    "Unit",
    "check_placed",
    "consensus",
    "factored_model_of",
    "leading",
    "training_peers",
]
