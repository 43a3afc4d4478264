"""What a graph between ranks is good for, in figures and drawn: `thinwire topology`."""

from thinwire.lab.topology.figures import Told, tell
from thinwire.lab.topology.graph_picture import write
from thinwire.lab.topology.kinds import KINDS, named

__all__ = ["KINDS", "Told", "named", "tell", "write"]
