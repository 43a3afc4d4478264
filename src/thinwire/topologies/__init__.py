"""Who speaks with whom, as plain data: kinds of graphs, and the graphs that they make of so many ranks."""

from .exponential import Exponential
from .graph import Graph
from .kind import Topology
from .own import Edges, Weights, edges_left
from .random import ErdosRenyi, RandomRegular
from .regular import Complete, Hypercube, Ring, Star, Torus
from .world import world

__all__ = [
    "Complete",
    "Edges",
    "ErdosRenyi",
    "Exponential",
    "Graph",
    "Hypercube",
    "RandomRegular",
    "Ring",
    "Star",
    "Topology",
    "Torus",
    "Weights",
    "edges_left",
    "world",
]
