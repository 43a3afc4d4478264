"""Which ranks exchange messages, as plain data: topologies, and the graphs they give for a world size."""

from .all_ranks import all_ranks
from .custom import Edges, Weights, surviving_topology
from .exponential import Exponential
from .graph import Graph
from .groups import ByHost, Grouping, Groups, GroupsOf, OneGroup, group_of, part_of, within
from .random import ErdosRenyi, RandomRegular
from .regular import Complete, Hypercube, Ring, Star, Torus
from .topology import Topology

__all__ = [
    "ByHost",
    "Complete",
    "Edges",
    "ErdosRenyi",
    "Exponential",
    "Graph",
    "Grouping",
    "Groups",
    "GroupsOf",
    "Hypercube",
    "OneGroup",
    "RandomRegular",
    "Ring",
    "Star",
    "Topology",
    "Torus",
    "Weights",
    "all_ranks",
    "group_of",
    "part_of",
    "surviving_topology",
    "within",
]
