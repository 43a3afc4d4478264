"""How fast PowerGossip brings replicas to consensus without training: eight normal matrices on a ring."""

import torch

from thinwire import EdgeGossip, PowerIteration
from thinwire.extend import Replica
from thinwire.simulate import Simulated

RANKS, SHAPE, SEED = 8, (100, 100), 0
SHOWN = (1, 10, 100, 300, 1000, 2000, 3000)  # iterations


def main() -> None:
    generator = torch.Generator().manual_seed(SEED)
    xs = [torch.randn(SHAPE, generator=generator, dtype=torch.float64) for _ in range(RANKS)]
    mean, start = torch.stack(xs).mean(0), (torch.stack(xs) - torch.stack(xs).mean(0)).square().sum()
    strategy = EdgeGossip(PowerIteration(1))
    replicas = [Replica({"w": x}, {"w": "dense"}, rank, RANKS) for rank, x in enumerate(xs)]
    states, cluster = [strategy.init(replica) for replica in replicas], Simulated(RANKS)
    print(f"{strategy}, {RANKS} ranks, {SHAPE[0]} x {SHAPE[1]}, seed {SEED}")
    for step in range(SHOWN[-1] + 1):  # nothing is sent in the first step
        for around in (strategy.before_update, strategy.after_update):
            results = cluster.run([around(*rank) for rank in zip(replicas, states, strict=True)])
            states = [result.state for result in results]
        if step in SHOWN:
            left = float((torch.stack(xs) - mean).square().sum() / start)
            moved = float((torch.stack(xs).mean(0) - mean).abs().max())
            print(f"{step:5} iterations: {left:.2e} of the squared distance is left, the mean moved by {moved:.1e}")


if __name__ == "__main__":
    main()
