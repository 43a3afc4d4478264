"""Strategies: what replicas talk about, and when."""

from .consensus import Consensus, consensus
from .data_parallel import DataParallel
from .edge_gossip import EdgeGossip
from .gossip import Gossip
from .layer import Layer
from .neighbours import Neighbours, Overlapping, overlap_of
from .push import Push
from .units import Unit

__all__ = [
    "Consensus",
    "DataParallel",
    "EdgeGossip",
    "Gossip",
    "Layer",
    "Neighbours",
    "Overlapping",
    "Push",
    "Unit",
    "consensus",
    "overlap_of",
]
