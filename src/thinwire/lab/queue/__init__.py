"""Queues: many runs from one file, one after the other; interrupted at any time, resumed from checkpoints."""

from thinwire.lab.queue.queue_file import Queue, read
from thinwire.lab.queue.runner import run
from thinwire.lab.queue.status import Status, status

__all__ = ["Queue", "Status", "read", "run", "status"]
