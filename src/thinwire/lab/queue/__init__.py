"""Many runs from one file, one after the other, for as long as it takes: interrupted at any time, never begun anew."""

from thinwire.lab.queue.queue_file import Queue, read
from thinwire.lab.queue.runner import run
from thinwire.lab.queue.status import Status, status

__all__ = ["Queue", "Status", "read", "run", "status"]
