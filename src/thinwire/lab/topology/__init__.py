"""The figures and the drawing of a communication graph: `thinwire topology`."""

from thinwire.lab.topology.figures import Described, describe
from thinwire.lab.topology.graph_picture import write
from thinwire.lab.topology.kinds import KINDS, named

__all__ = ["KINDS", "Described", "describe", "named", "write"]
