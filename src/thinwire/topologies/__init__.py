"""Who speaks with whom, as plain data: kinds of graphs, and the graphs that they make of so many ranks."""

from .custom import Edges, Weights, edges_left
from .exponential import Exponential
from .graph import Graph
from .groups import ByHost, Grouping, Groups, GroupsOf, Together, group_of, part_of, within
from .random import ErdosRenyi, RandomRegular
from .regular import Complete, Hypercube, Ring, Star, Torus
from .topology import Topology
from .world import world

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
    "RandomRegular",
    "Ring",
    "Star",
    "Together",
    "Topology",
    "Torus",
    "Weights",
    "edges_left",
    "group_of",
    "part_of",
    "within",
    "world",
]
