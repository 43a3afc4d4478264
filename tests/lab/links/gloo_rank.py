"""Started by torchrun in a network: all ranks sum a tensor; rank 0 prints the time and the interface's bytes."""

import json
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from thinwire.lab import links


def main() -> None:
    store, rank, ranks = next(rendezvous("env://"))
    links.enter(rank)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    tensor = torch.ones(int(sys.argv[1]))
    dist.barrier()
    before, start = links.counters(), time.perf_counter()
    dist.all_reduce(tensor)
    seconds = time.perf_counter() - start
    dist.barrier()  # so that the last acknowledgements have arrived
    counted = [after - earlier for earlier, after in zip(before, links.counters(), strict=True)]
    if rank == 0:
        report = {"inside": links.inside(), "sum": float(tensor.sum()), "seconds": seconds, "counted": counted}
        print(json.dumps(report))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
