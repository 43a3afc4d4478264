"""Links of a given rate between the ranks of a run on one machine."""

from thinwire.lab.links.check import Checked, check
from thinwire.lab.links.link import Link
from thinwire.lab.links.network import LinkError, possible, wrapped
from thinwire.lab.links.rank_side import counters, enter, inside

__all__ = ["Checked", "Link", "LinkError", "check", "counters", "enter", "inside", "possible", "wrapped"]
