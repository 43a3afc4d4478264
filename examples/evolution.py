"""Balance a pole on a cart by evolution strategies: no gradients, no optimizer, no model to wrap.

    python examples/evolution.py                                        # one replica
    thinwire run examples/evolution.py --ranks 4                        # four processes
    thinwire run examples/evolution.py --ranks 4 --transport simulated  # four in one process

A generation is a list of seeds. Each stands for a mutation of the policy and for its opposite (antithetic sampling).
Both play, and the policy moves towards the better one. `map_reduce` spreads the seeds over the replicas and sums the
results: mutants are never sent, only their sum. Any number of replicas finds the same policy, up to the rounding of
sums.
"""

import argparse
from collections.abc import Iterator
from hashlib import sha256
from itertools import count

import torch
from torch import Tensor

import thinwire
from thinwire import Context

POPULATION = 16  # pairs of mutants in a generation
MUTATION, RATE = 0.1, 0.3  # distance of mutants from the policy, and its step size
HIDDEN, WEIGHTS = 6, 30  # of the policy
GAMES, TIME_STEPS, SECONDS = 8, 200, 0.02  # games at once; time steps per game; seconds per time step


def sampled(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def force(policy: Tensor, *state: Tensor) -> Tensor:
    """A network with one hidden layer, whose weights are one vector."""
    first, second = policy[: 4 * HIDDEN].view(4, HIDDEN), policy[4 * HIDDEN :]
    return 10 * ((torch.stack(state, dim=1) @ first).tanh() @ second).tanh()


def play(policy: Tensor) -> float:
    """The share of time with the pole up and the cart on its track, over games with different initial states."""
    cart, speed, angle, turning = 0.03 * sampled(0, 4, GAMES)
    up, total = torch.ones(GAMES, dtype=torch.bool), 0
    for _ in range(TIME_STEPS):
        # A cart of 1 kg with a pole of 100 g and 1 m.
        push = (force(policy, cart, speed, angle, turning) + 0.05 * turning**2 * angle.sin()) / 1.1
        falling = (9.8 * angle.sin() - push * angle.cos()) / (2 / 3 - 0.05 * angle.cos() ** 2 / 1.1)
        cart, speed = cart + SECONDS * speed, speed + SECONDS * (push - 0.05 * falling * angle.cos() / 1.1)
        angle, turning = angle + SECONDS * turning, turning + SECONDS * falling
        up &= (cart.abs() < 2.4) & (angle.abs() < 0.2)
        total += int(up.sum())
        if not up.any():
            break
    return total / (GAMES * TIME_STEPS)


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=12, help="generations")
args = parser.parse_args()

repl = thinwire.Replicator()
policy = sampled(0, WEIGHTS)  # the same on all replicas


def input_fn(ctx: Context) -> Iterator[range]:
    """The seeds of each generation: every replica receives all of them and computes its share."""
    for generation in count():
        yield range(1 + generation * POPULATION, 1 + (generation + 1) * POPULATION)


def step_fn(ctx: Context, seeds: range) -> float:
    """Compute one generation and return its mean score."""

    def pair(seed: int) -> dict[str, Tensor | float]:
        mutation = sampled(seed, WEIGHTS)
        one, other = play(policy + MUTATION * mutation), play(policy - MUTATION * mutation)
        return {"towards": (one - other) * mutation, "contrast": (one - other) ** 2, "score": (one + other) / 2}

    total = ctx.map_reduce(pair, seeds, reduce="mean")
    if total["contrast"] > 0:
        policy.add_(total["towards"], alpha=RATE / total["contrast"] ** 0.5)
    return total["score"]


scores = repl.run(step_fn, input_fn, args.steps)
if repl.rank == 0:
    digest = sha256(policy.numpy().tobytes()).hexdigest()[:12]
    print("mean score of each generation:", *(f"{score:.4f}" for score in scores))
    print(f"replicas {repl.num_replicas}: score {play(policy):.4f}, norm {policy.norm():.9f}, digest {digest}")
