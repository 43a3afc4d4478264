"""Strategies: what replicas talk about, and when."""

from .ab_training import ABTraining
from .consensus import Consensus, consensus
from .data_parallel import DataParallel, all_who_train
from .edge_gossip import EdgeGossip
from .elastic import Elastic
from .gossip import Gossip
from .independent import Independent, Overlapping
from .layer import Layer
from .leader import Leader, leading
from .local_steps import LocalSteps
from .neighbours import Neighbours
from .nested import Nested
from .outer import OuterSGD
from .placing import check_placed
from .push import Push
from .syncs import workshop_of
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
