"""Strategies: what replicas talk about, and when."""

from .ab_training.strategy import ABTraining
from .ab_training.synchronization import workshop_of
from .consensus import Consensus, consensus
from .data_parallel import DataParallel, all_who_train
from .decentralized import Neighbours
from .easgd import Elastic
from .edge_gossip import EdgeGossip
from .gossip import Gossip
from .hierarchical import Nested
from .independent import Independent, Overlapping
from .layer_report import Layer
from .leader_sgd import Leader, leading
from .local_sgd import LocalSteps
from .outer_sgd import OuterSGD
from .placement import check_placed
from .push_sum import Push
from .units import Unit

__all__ = [
    "ABTraining",
    "Consensus",
    "DataParallel",
    "EdgeGossip",
    "Elastic",
    "Gossip",
    "Independent",
    "Layer",
    "Leader",
    "LocalSteps",
    "Neighbours",
    "Nested",
    "OuterSGD",
    "Overlapping",
    "Push",
    "Unit",
    "all_who_train",
    "check_placed",
    "consensus",
    "leading",
    "workshop_of",
]
