"""Who speaks with whom, as plain data: kinds of graphs, and the graphs that they make of so many ranks."""

from .all_ranks import all_ranks
from .custom import Edges, Weights, edges_left
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
    "edges_left",
    "group_of",
    "part_of",
    "within",
]
